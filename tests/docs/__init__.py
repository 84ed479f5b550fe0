"""The documentation, held to what it says: examples run, links resolve, tables are current."""
