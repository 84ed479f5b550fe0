"""The project in examples/, run as a reader runs it."""
