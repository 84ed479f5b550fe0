"""The table of round trips is counted, on each of the chosen databases."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction

from django_distlock import lock, locks
from django_distlock.backends.table import TableBackend
from django_distlock.backends.table.statements import TextStatements
from tests.docs.test_reference import reference, table

DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}
PAGE = 500  # held locks that a scan reads with one statement


@pytest.fixture(params=[alias for alias in DATABASES if alias in connections.settings])
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database, connected."""
    alias = str(request.param)
    connections[alias].ensure_connection()
    yield alias
    connections[alias].close()


@contextmanager
def counted(alias: str) -> Iterator[list[str]]:
    """Collect the statements on this thread's connection; there may be no other."""
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connections[alias].execute_wrapper(note):
        yield statements


def promised(alias: str) -> dict[str, int]:
    """Return the page's column for a database, by call."""
    place = list(DATABASES).index(alias)
    rows = table(reference("statements"), "Round trips")
    return {call.strip("`"): int(numbers[place]) for call, *numbers in rows}


def test_the_round_trips_are_what_the_page_says(alias: str, name: str) -> None:
    """Count each call's statements."""
    seen: dict[str, int] = {}

    def count(call: str, do: Callable[[], Any]) -> Any:
        with counted(alias) as statements:
            result = do()
        seen[call] = len(statements)
        return result

    key = lock(name, using=alias, ttl=30)
    key.acquire().release()  # type: ignore[union-attr]  # the name's first grant makes its row
    lease = count("acquire, granted", key.acquire)
    stranger = contextvars.Context()
    refused = count(
        "acquire, refused (each look of a waiter)",
        lambda: stranger.run(lambda: key.acquire(wait=0)),
    )
    assert refused is None
    count("renew", lease.renew)
    assert count("locked()", key.locked)
    assert count("held()`, for each 500 held locks and once more", lambda: _held(alias, name)) == [
        name
    ]
    count("release", lease.release)
    broken = key.acquire()
    assert broken is not None
    count("force_release()", lambda: locks[alias].force_release(name))
    seen["held()`, for each 500 held locks and once more"] -= 1
    assert seen == promised(alias)


def _held(alias: str, prefix: str) -> list[str]:
    return [info.name for info in locks[alias].held(prefix)]


def test_inside_atomic_the_statement_runs_where_the_page_says(alias: str, name: str) -> None:
    """Count on the caller's connection: all on SQLite, none on a server database."""
    with transaction.atomic(using=alias), counted(alias) as statements:
        lease = lock(name, using=alias).acquire()
        assert lease is not None
        lease.release()  # put off to the commit
    ours = [sql for sql in statements if "distlock_lock" in sql]
    assert len(ours) == (1 if alias == "sqlite" else 0)
    assert not lock(name, using=alias).locked()


def test_a_scan_reads_as_many_rows_as_the_page_says() -> None:
    """Compare the limit in the statement."""
    for alias in DATABASES:
        if alias in connections.settings:
            backend = locks[alias]
            assert isinstance(backend, TableBackend)
            statements = backend.statements()
            assert isinstance(statements, TextStatements)
            assert statements.dialect.scan.endswith(f"LIMIT {PAGE}")
