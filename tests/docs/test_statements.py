"""The table of round trips is counted, on each of the chosen databases."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections, transaction

from django_distlock import lock, locks
from django_distlock.backends.table import TableBackend, sql
from django_distlock.backends.table.statements import TextStatements
from django_distlock.core.values import CleanPolicy
from tests.docs.pages import ROOT, Page
from tests.docs.test_reference import table

STATEMENTS = Page(ROOT / "docs" / "internals" / "statements.md")

DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}
HERE = [alias for alias in DATABASES if alias in connections.settings]
PAGE = 500  # held locks that a scan reads with one statement


def database_of(alias: str) -> str:
    """Return the database of a lock alias."""
    return alias.rpartition("-")[2]


OTHERS = [f"{technique}-{alias}" for technique in ("portable", "version") for alias in HERE]


@pytest.fixture(params=[*HERE, *OTHERS])
def alias(request: pytest.FixtureRequest) -> Iterator[str]:
    """A lock alias, and its database connected."""
    alias = str(request.param)
    connections[database_of(alias)].ensure_connection()
    yield alias
    connections[database_of(alias)].close()


@contextmanager
def counted(alias: str) -> Iterator[list[str]]:
    """Collect the statements on this thread's connection; there may be no other."""
    alias = database_of(alias)
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connections[alias].execute_wrapper(note):
        yield statements


def promised(alias: str) -> dict[str, int]:
    """Return the page's column for a database, by call."""
    place = [*DATABASES, "portable", "version"].index(alias.partition("-")[0])
    rows = table(STATEMENTS, "Round trips")
    return {call.strip("`"): int(numbers[place]) for call, *numbers in rows}


def test_the_round_trips_are_what_the_page_says(alias: str, name: str) -> None:
    """Count each call's statements."""
    seen: dict[str, int] = {}

    def count(call: str, do: Callable[[], Any]) -> Any:
        with counted(alias) as statements:
            result = do()
        seen[call] = len(statements)
        return result

    with lock(f"{name} before", using=alias):
        pass  # what an alias asks its server once is asked
    key = lock(name, using=alias, ttl=30)
    first = count("acquire, granted, a name never seen", key.acquire)
    first.release()
    lease = count("acquire, granted", key.acquire)
    stranger = contextvars.Context()
    refused = count(
        "acquire, refused (each poll of a waiter)",
        lambda: stranger.run(lambda: key.acquire(wait=0)),
    )
    assert refused is None
    count("renew", lease.renew)
    assert count("locked()", key.locked)
    assert count("held()`, for each 500 held locks and once more", lambda: _held(alias, name)) == [
        name
    ]
    count("release", lease.release)
    backend, policy = locks[alias], CleanPolicy(older_than=0.0, batch=1)
    batch = backend.key(name)[:-1]  # after this comes the row of the name, which is idle now
    cleaned = count(
        "clean()`, for each 500 rows of which some are idle",
        lambda: backend.clean_batch(policy, batch),
    )
    assert (cleaned.removed, cleaned.seen) == (1, 1)
    broken = key.acquire()
    assert broken is not None
    count("force_release()", lambda: locks[alias].force_release(name))
    seen["held()`, for each 500 held locks and once more"] -= 1
    assert seen == promised(alias)


def test_the_statements_of_the_wait_queue_are_those_of_the_page() -> None:
    text = " ".join(STATEMENTS.text.split())
    for dialect in (sql.POSTGRESQL, sql.MARIADB):
        assert dialect.wait_queue is not None
        assert dialect.wait_queue.enter in text
        assert dialect.wait_queue.leave in text


def _held(alias: str, prefix: str) -> list[str]:
    return [info.name for info in locks[alias].held(prefix)]


def test_inside_atomic_the_statement_runs_where_the_page_says(alias: str, name: str) -> None:
    """Count on the caller's connection: all on SQLite, none on a server database."""
    with transaction.atomic(using=database_of(alias)), counted(alias) as statements:
        lease = lock(name, using=alias).acquire()
        assert lease is not None
        lease.release()  # put off to the commit
    ours = [sql for sql in statements if "distlock_lock" in sql]
    assert len(ours) == {"sqlite": 1, "portable-sqlite": 4, "version-sqlite": 4}.get(alias, 0)
    assert not lock(name, using=alias).locked()


def test_a_scan_reads_as_many_rows_as_the_page_says() -> None:
    """Compare the limit in the statement."""
    for alias in HERE:
        backend = locks[alias]
        assert isinstance(backend, TableBackend)
        statements = backend.statements()
        assert isinstance(statements, TextStatements)
        assert statements.dialect.scan.endswith(f"LIMIT {PAGE}")


def plain(sql: str) -> str:
    """Return SQL without what differs between databases and versions of Django."""
    sql = re.sub(r'["`]', "", sql).replace("distlock_lock.", "").replace("(UTC_TIME", "UTC_TIME")
    sql = re.sub(r" AS \w+", "", sql)
    now = r"(?<=SELECT )%s$|%s(?= +FROM)"
    now += r"|\(CLOCK_TIMESTAMP\(\) AT TIME ZONE 'UTC'\)|UTC_TIMESTAMP\(6\)"
    sql = re.sub(now, "<now>", sql)
    sql = re.sub(r"WHERE \((.*)\)(?= ORDER|$)", r"WHERE \1", sql)
    sql = re.sub(r"ORDER BY \w+ ASC", "ORDER BY digest", sql)
    sql = re.sub(r"LIMIT \d+", "LIMIT 500", sql)
    return " ".join(sql.split())


@pytest.mark.parametrize("alias", [f"portable-{alias}" for alias in HERE], indirect=True)
def test_the_portable_statements_are_those_of_the_page(alias: str, name: str) -> None:
    """Compare what is sent with the page's section, both ways."""
    with counted(alias) as sent:
        lease = lock(name, using=alias).acquire()
        assert lease is not None
        lease.renew()
        next(iter(locks[alias].held(name)))
        lease.release()
        backend = locks[alias]
        backend.clean_batch(CleanPolicy(older_than=0.0, batch=1), backend.key(name)[:-1])
    section = STATEMENTS.text.partition("### Portable")[2].partition("\n### ")[0]
    shown = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    assert {plain(sql) for sql in sent} == {plain(sql) for sql in shown}
