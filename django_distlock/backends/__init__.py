"""One file or folder a store. Nothing here is imported before an alias names it."""
