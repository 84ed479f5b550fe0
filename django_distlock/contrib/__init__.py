"""What needs another package: one module for each, imported by whoever has that."""
