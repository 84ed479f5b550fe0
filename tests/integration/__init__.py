"""Tests of whole programs: the example shop and its demo, run as a user runs them."""

from __future__ import annotations

from typing import Any


def new_database(store: str, name: str) -> dict[str, Any]:
    """Create a database on a server of this test session, and return its settings."""
    from tests.conftest import SERVERS

    return SERVERS[store].create_database(name)
