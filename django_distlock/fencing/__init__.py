"""Fenced writes: rows that refuse the holder of a lock that another has acquired since."""
