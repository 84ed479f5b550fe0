"""Isolation levels of the user's connection: locks work in all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_distlock import lock, locks
from django_distlock.core import flow
from django_distlock.core.cleaning import clean
from django_distlock.core.values import CleanPolicy
from tests.backends.tools import SERVERS, Cell, Elsewhere, database_alias, lock_alias
from tests.servers import ByStore

THREADS = 4
TURNS = 8

LEVELS: ByStore[list[tuple[str, dict[str, Any]]]] = ByStore(
    {
        "postgresql": [
            # The numbers are psycopg.IsolationLevel's. What the driver sets counts in transactions
            # only; what the session sets counts for the lone statements of the lock table, too.
            ("repeatable read", {"isolation_level": 3}),
            ("serializable", {"isolation_level": 4}),
            (
                "repeatable read everywhere",
                {"options": r"-c default_transaction_isolation=repeatable\ read"},
            ),
            (
                "serializable everywhere",
                {"options": "-c default_transaction_isolation=serializable"},
            ),
        ],
        "mariadb": [
            ("read uncommitted", {"isolation_level": "read uncommitted"}),
            ("repeatable read", {"isolation_level": "repeatable read"}),
            ("serializable", {"isolation_level": "serializable"}),
        ],
    }
)
CHOICES = [(store, *level) for store in SERVERS for level in LEVELS[store]]


@pytest.fixture(params=["auto", "portable"])
def sql(request: pytest.FixtureRequest) -> str:
    """Whose SQL."""
    return str(request.param)


@pytest.fixture(params=CHOICES, ids=lambda choice: f"{choice[0]} {choice[1]}")
def isolated(request: pytest.FixtureRequest, sql: str) -> Iterator[str]:
    """An alias of DATABASES and of DISTLOCKS with an isolation level."""
    store, _, options = request.param
    settings = dict(connections.settings[store])
    settings["OPTIONS"] = settings["OPTIONS"] | options
    conf = {"LOCATION": "isolated", "OPTIONS": {"SQL": sql}}
    with database_alias("isolated", settings), lock_alias("isolated", **conf):
        yield "isolated"


def test_uncontended(isolated: str, name: str) -> None:
    tokens = []
    for _ in range(3):
        with lock(name, using=isolated) as lease:
            lease.renew()
            tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))


def test_contended(isolated: str, name: str) -> None:
    """Every turn reads, waits and writes what it read plus one: a turn that is lost is missed."""
    cell = Cell.new(isolated, name)
    began = threading.Barrier(THREADS)
    tokens: list[int] = []

    def turns() -> None:
        began.wait()
        for _ in range(TURNS):
            with lock(name, using=isolated, wait=30).atomic(using=isolated) as lease:
                tokens.append(lease.fencing_token)
                value = cell.read()
                time.sleep(0.002)
                cell.write(value + 1)

    workers = [Elsewhere(turns).start() for _ in range(THREADS)]
    for worker in workers:
        worker.result()
    assert cell.read() == THREADS * TURNS
    assert tokens == sorted(set(tokens))


def test_contended_beside_cleanings(isolated: str, name: str) -> None:
    """Rows vanish between all turns, and may be in conflict with whoever takes them: none fails."""
    cell = Cell.new(isolated, name)
    over = threading.Event()
    at_once = CleanPolicy(older_than=0.0)

    def turns() -> None:
        for _ in range(TURNS):
            with lock(name, using=isolated, wait=30):
                cell.write(cell.read() + 1)

    def keep_clean() -> int:
        removed = 0
        while not over.is_set():
            backend = locks[isolated]
            removed += flow.run(clean(backend, at_once, clock=backend.clock)).removed
        return removed

    cleaners = [Elsewhere(keep_clean).start() for _ in range(2)]
    try:
        workers = [Elsewhere(turns).start() for _ in range(THREADS)]
        for worker in workers:
            worker.result()
    finally:
        over.set()
    assert sum(cleaner.result() for cleaner in cleaners) > 0
    assert cell.read() == THREADS * TURNS


def test_held_in_a_transaction_of_that_level(isolated: str, name: str) -> None:
    cell = Cell.new(isolated, name)

    def turn() -> None:
        # The lock comes first, so the transaction's snapshot is taken under it.
        with lock(name, using=isolated, wait=30), connections[isolated].cursor() as cursor:
            cursor.execute("BEGIN")
            cell.write(cell.read() + 1)
            cursor.execute("COMMIT")

    workers = [Elsewhere(turn).start() for _ in range(THREADS)]
    for worker in workers:
        worker.result()
    assert cell.read() == THREADS
