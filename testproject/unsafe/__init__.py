"""What not to do. Nothing here is part of the package, and nothing here is to be copied."""
