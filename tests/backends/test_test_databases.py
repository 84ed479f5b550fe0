"""What a test began in the background ends with its database, and never reaches the real one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.db.backends.signals import connection_created

from django_distlock import Lease, lock, locks
from django_distlock.core.watchdog import worker_of
from tests.backends.tools import (
    LIMIT,
    SERVERS,
    Undo,
    database_alias,
    elsewhere,
    lock_alias,
    opened,
    soon,
    undone,
)


class Runner:
    """The alias "own", as Django's test runner points it to a test database and back."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._gate = threading.Event()
        self.connected: list[str] = []

    def hold_back(self) -> None:
        """Let the background begin nothing before the test database is gone."""
        worker_of(locks["own"]).submit(lambda: opened(self._gate))

    def end_tests(self) -> None:
        """Let the alias mean the real database, and the background go on."""
        connections["own"].close()
        connections.settings["own"]["NAME"] = self._real
        self._gate.set()

    def reached_the_real_one(self) -> bool:
        """Tell whether anybody connected to the real database, once the background is idle."""
        assert soon(lambda: worker_of(locks["own"])._thread is None)
        return self._real in self.connected


@pytest.fixture
def runner(store: str, quiet: dict[str, Any], tmp_path: Path) -> Iterator[Runner]:
    """The alias "own" of DATABASES and DISTLOCKS, pointing to its test database."""
    real = str(tmp_path / "real.sqlite3")
    if store in SERVERS:
        real = str(connections.settings[store]["NAME"])
    with database_alias("own", quiet), lock_alias("own", LOCATION="own"):
        call_command("migrate", database="own", verbosity=0)
        made = Runner(real)

        def note(*, connection: Any, **kwargs: Any) -> None:
            if connection.alias == "own":  # not what other tests have left in the background
                made.connected.append(str(connection.settings_dict["NAME"]))

        connection_created.connect(note)
        try:
            yield made
        finally:
            connection_created.disconnect(note)
            made._gate.set()


@contextmanager
def background() -> Iterator[None]:
    """Have the statements of the block fail, as a refused or interrupted one does."""

    def refuse(*args: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), connections["own"].execute_wrapper(refuse):
        yield


def taken(name: str, **options: Any) -> Lease:
    """Take a lock of the test's."""
    lease: Lease | None = lock(name, using="own", **options).acquire()
    assert lease
    return lease


def test_a_claim_that_was_given_up(runner: Runner, name: str) -> None:
    runner.hold_back()
    with background():
        lock(name, using="own").acquire()
    runner.end_tests()
    assert not runner.reached_the_real_one()


def test_a_lease_that_was_given_up(runner: Runner, name: str) -> None:
    lease = taken(name)
    runner.hold_back()
    with background():
        lease.release()
    runner.end_tests()
    assert not runner.reached_the_real_one()


def test_a_release_after_a_rollback(runner: Runner, name: str) -> None:
    runner.hold_back()
    lease = taken(name)
    with undone(), transaction.atomic("own"):
        lease.release()
        raise Undo
    runner.end_tests()
    assert not runner.reached_the_real_one()


def test_a_lease_that_a_test_left(runner: Runner, name: str) -> None:
    lease = taken(name, ttl=0.6)
    runner.end_tests()
    time.sleep(0.4)
    assert not runner.reached_the_real_one()
    assert lease._hold.renewing is False


def test_a_renewal_under_way(runner: Runner, name: str) -> None:
    lease = taken(name, ttl=0.6)
    runner.hold_back()
    assert soon(lambda: lease._hold.in_flight)
    runner.end_tests()
    assert not runner.reached_the_real_one()


def test_the_background_reaches_the_database_of_its_own(runner: Runner, name: str) -> None:
    runner.hold_back()
    lease = taken(name)
    with background():
        lease.release()
    runner.connected.clear()
    runner._gate.set()
    assert soon(lambda: elsewhere(lambda: not lock(name, using="own").locked()), LIMIT)
