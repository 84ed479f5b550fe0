"""Fenced writes, on real databases."""
