"""What the contract suite counts is what is open."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.contract.connections import connections_to


def used(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
    return connection


def test_a_descriptor_that_sqlite_keeps_is_no_connection(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with closing(used(path)):
        others = [used(path) for _ in range(3)]
        assert connections_to(path) == 4
        for left, other in enumerate(others, 1):
            other.close()
            assert connections_to(path) == 4 - left
    assert connections_to(path) == 0
