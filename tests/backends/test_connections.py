"""Whose connection a lock uses, how many there are, and that none is left behind."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test.utils import setup_test_environment, teardown_test_environment

from django_distlock import Lease, lock, locks
from django_distlock.backends.table import connection, sentry
from django_distlock.core.watchdog import worker_of
from django_distlock.core.worker import events
from django_distlock.metrics import Measurement, listen
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    lock_alias,
    one_value,
    sessions,
    soon,
    table,
)
from tests.conftest import SERVERS as STARTED
from tests.servers import ByStore

on_servers = pytest.mark.parametrize("store", SERVERS)

MOST_IDLE = 4
"""What one process keeps of connections for locks inside transactions, at most."""


@contextmanager
def using(settings: dict[str, Any], **conf: Any) -> Iterator[str]:
    """Open an alias "own" of DATABASES and of DISTLOCKS."""
    with database_alias("own", settings), lock_alias("own", LOCATION="own", **conf) as alias:
        yield alias


@on_servers
def test_in_autocommit_the_callers_own_is_used(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    with using(quiet) as alias:
        mine = one_value("own", "id")
        with lock(name, using=alias, ttl=30):
            assert sessions(store) == {mine}
        assert sessions(store) == {mine}
        assert one_value("own", "id") == mine


@on_servers
@pytest.mark.parametrize("age", [0, None, 600])
def test_in_a_transaction_a_second_one_is_used_and_kept_for_a_moment(
    store: str, quiet: dict[str, Any], name: str, age: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with CONN_MAX_AGE 0, Django's default: connecting costs more than many locks."""
    with using(quiet | {"CONN_MAX_AGE": age}) as alias:
        seen = set()
        for number in range(3):
            with transaction.atomic(using="own"):
                mine = one_value("own", "id")
                with lock(f"{name}:{number}", using=alias):
                    pass
                seen |= sessions(store) - {mine}
        assert len(seen) == 1
        monkeypatch.setattr(connection, "IDLE", 0.05)
        with transaction.atomic(using="own"), lock(name, using=alias):
            mine = one_value("own", "id")
        assert soon(lambda: sessions(store) <= {mine})


@on_servers
def test_a_kept_one_ends_at_its_age(store: str, quiet: dict[str, Any], name: str) -> None:
    with using(quiet | {"CONN_MAX_AGE": 0.3}) as alias:
        seen = []
        for number in range(2):
            with transaction.atomic(using="own"):
                mine = one_value("own", "id")
                with lock(f"{name}:{number}", using=alias):
                    pass
                others = sessions(store) - {mine}
                seen.append(others)
            time.sleep(0.35)
        assert [len(each) for each in seen] == [1, 1]
        assert seen[0] != seen[1]


@on_servers
def test_many_at_once_leave_only_a_few(store: str, quiet: dict[str, Any], name: str) -> None:
    inside = threading.Barrier(2 * MOST_IDLE + 1)
    told = threading.Event()

    def work(number: int) -> None:
        with transaction.atomic(using="own"):
            leases = [lock(f"{name}:{number}", using=alias).acquire()]
            inside.wait(20)
            assert told.wait(20)
            for lease in leases:
                assert lease
                lease.release()

    with using(quiet | {"CONN_MAX_AGE": None}) as alias:
        workers = [Elsewhere(partial(work, n)).start() for n in range(2 * MOST_IDLE)]
        inside.wait(20)
        assert len(sessions(store)) <= 2 * MOST_IDLE + MOST_IDLE
        told.set()
        for worker in workers:
            worker.result()
        assert soon(lambda: len(sessions(store)) <= MOST_IDLE)
    assert soon(lambda: not sessions(store))


@on_servers
def test_in_a_test_environment_it_is_closed_at_once(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    """Else Django's test runner could not drop the database."""
    setup_test_environment()
    try:
        with using(quiet | {"CONN_MAX_AGE": None}) as alias, transaction.atomic(using="own"):
            mine = one_value("own", "id")
            with lock(name, using=alias):
                assert soon(lambda: sessions(store) == {mine})
    finally:
        teardown_test_environment()


@on_servers
@pytest.mark.parametrize("block", ["autocommit", "atomic"])
def test_threads_that_close_theirs_leave_none(
    store: str, quiet: dict[str, Any], name: str, block: str
) -> None:
    with using(quiet) as alias:

        def work(number: int) -> None:
            around = transaction.atomic(using="own") if block == "atomic" else nullcontext()
            with around, lock(f"{name}:{number % 3}", using=alias, wait=20):
                time.sleep(0.01)

        workers = [Elsewhere(partial(work, n)).start() for n in range(6)]
        for worker in workers:
            worker.result()
        table(alias).close_idle()  # what those who waited used, else closed after 5 s
        assert soon(lambda: not sessions(store))


@on_servers
def test_the_watchdog_closes_its_own_between_two_rounds(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    renewed = threading.Event()

    def note(measurement: Measurement) -> None:
        if measurement.outcome == "renewed":
            renewed.set()

    stop = listen(note)
    try:
        with using(quiet) as alias:
            mine = one_value("own", "id")
            with lock(name, using=alias, ttl=4.5) as lease:
                assert renewed.wait(10)
                assert soon(lambda: sessions(store) == {mine})
                lease.check()
    finally:
        stop()


@pytest.mark.parametrize("store", [name for name in ("memory",) if name in locks.settings])
def test_the_watchdog_closes_its_own_to_a_database_in_memory(store: str, name: str) -> None:
    """Which Django's own `close()` does not, and of which Python 3.13 warns."""
    for worker in (worker_of(locks[store]), events):
        opened: list[Any] = []
        worker.submit(partial(_use, store, opened))
        assert soon(partial(bool, opened))
        assert soon(partial(_is_closed, opened[0]))


def test_a_job_that_outlasts_its_alias_leaves_no_connection(store: str) -> None:
    """A hung server may delay the job; no other code closes the connection of its thread."""
    opened: list[Any] = []
    gate = threading.Event()

    def job() -> None:
        connections[store].ensure_connection()
        opened.append(connections[store])
        gate.wait(20)

    with lock_alias("own", LOCATION=store) as alias:
        worker_of(locks[alias]).submit(job)
        assert soon(partial(bool, opened))
    gc.collect()
    gate.set()
    assert soon(lambda: opened[0].connection is None)


def _use(store: str, opened: list[Any]) -> None:
    connections[store].ensure_connection()
    opened.append(connections[store].connection)


def _is_closed(raw: Any) -> bool:
    try:
        raw.total_changes  # noqa: B018 - says it by an error
    except sqlite3.ProgrammingError:
        return True
    return False


@on_servers
def test_an_async_caller_leaves_none(store: str, quiet: dict[str, Any], name: str) -> None:
    async def work() -> None:
        async with lock(name, using=alias):
            pass

    with using(quiet) as alias:
        elsewhere(async_to_sync(work))
        assert soon(lambda: not sessions(store))


# -- psycopg's pool ------------------------------------------------------------------------------

if "postgresql" in SERVERS:
    pooled = pytest.mark.parametrize("store", ["postgresql"])

    @contextmanager
    def pool(settings: dict[str, Any], **options: Any) -> Iterator[str]:
        """Open the alias "own" with a pool of two connections."""
        size = {"min_size": 1, "max_size": 2, "timeout": 3}
        with using(settings | {"OPTIONS": {"pool": size | options}}) as alias:
            yield alias
            connection: Any = connections["own"]
            connection.close_pool()

    @pooled
    def test_a_pool_is_used_and_given_back(quiet: dict[str, Any], name: str) -> None:
        with pool(quiet) as alias:

            def work() -> None:
                for _ in range(3):
                    with lock(name, using=alias, wait=20):
                        pass
                    connections["own"].close()  # as at the end of a request

            workers = [Elsewhere(work).start() for _ in range(4)]
            for worker in workers:
                worker.result()

    @pooled
    def test_a_pool_does_not_run_dry_inside_transactions(quiet: dict[str, Any], name: str) -> None:
        """Both connections are in transactions, so a lock must not want a third."""
        both = threading.Barrier(2)

        def work(number: int) -> None:
            with transaction.atomic(using="own"):
                one_value("own", "id")
                both.wait(10)
                for turn in range(3):
                    with lock(f"{name}:{number}:{turn}", using=alias):
                        pass
                both.wait(10)

        with pool(quiet) as alias:
            workers = [Elsewhere(partial(work, n)).start() for n in range(2)]
            for worker in workers:
                worker.result()

    @pooled
    def test_a_dry_pool_does_not_stop_the_watchdog(quiet: dict[str, Any], name: str) -> None:
        both = threading.Barrier(2)
        leases: list[Lease] = []

        def work(number: int) -> None:
            with transaction.atomic(using="own"):
                one_value("own", "id")
                both.wait(10)
                with lock(f"{name}:{number}", using=alias, ttl=2.4) as lease:
                    leases.append(lease)
                    time.sleep(2.7)
                    lease.check()

        with pool(quiet) as alias:
            workers = [Elsewhere(partial(work, n)).start() for n in range(2)]
            for worker in workers:
                worker.result()
        assert len(leases) == 2


@on_servers
def test_a_health_check_is_done_before_the_socket_is_watched(
    store: str, quiet: dict[str, Any], name: str
) -> None:
    """Django reopens one that fails it, and the old socket's number may then be a stranger's."""
    lower = os.open(os.devnull, os.O_RDONLY)
    settings = quiet | {"CONN_HEALTH_CHECKS": True, "CONN_MAX_AGE": None}
    with using(settings) as alias, lock(f"{name}:1", using=alias):
        own = connections["own"]
        before = own.connection.fileno()
        session = one_value("own", "id")
        own.close_if_unusable_or_obsolete()  # as between two requests
        kill = ByStore(postgresql="SELECT pg_terminate_backend({})", mariadb="KILL {}")
        STARTED[store].execute(kill[store].format(session))
        os.close(lower)  # so that the new socket has another number than the old one
        watched: list[int] = []

        def note(execute: Callable[..., Any], *rest: Any) -> Any:
            watched.extend(sentry._sentry.watches)
            return execute(*rest)

        with own.execute_wrapper(note):
            lock(f"{name}:2", using=alias).locked()
        assert own.connection.fileno() != before
        assert watched == [own.connection.fileno()]
