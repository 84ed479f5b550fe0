"""The redis backend against real servers."""
