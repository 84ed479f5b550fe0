"""Tests of every part that needs no server."""
