"""The shop that the examples are about."""
