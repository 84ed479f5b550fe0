"""A server whose connections are all in use: told as a failure, with the remedy, and got over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_distlock import LeaseLostError, LockBackendError, lock
from tests.backends.outages import loss_told, taken
from tests.backends.tools import elsewhere, soon
from tests.faults.places import CONNECTIONS, Place

REMEDY = "All connections that the database server, or the pooler before it, allows are in use"


@contextmanager
def all_in_use() -> Iterator[None]:
    """Keep all of the server's connections busy but those that are open already."""
    taken: list[BaseDatabaseWrapper] = []
    try:
        while True:
            one = connections["own"].copy()
            try:
                one.ensure_connection()
            except OperationalError:
                break
            taken.append(one)
            assert len(taken) <= CONNECTIONS
        yield
    finally:
        for one in taken:
            one.close()


def granted(name: str) -> bool:
    """Tell whether another thread, with a connection of its own, gets the lock."""

    def attempt() -> bool:
        try:
            with lock(name, using="own", wait=0.1):
                return True
        except LockBackendError:
            return False

    return elsewhere(attempt)


def test_it_is_a_failure_and_the_remedy_is_told(served: Place, name: str) -> None:
    with all_in_use():
        for wait in (0, 0.3):
            with pytest.raises(LockBackendError, match=REMEDY) as info:
                elsewhere(lambda wait=wait: taken(name, wait=wait))  # type: ignore[misc]
            assert (info.value.name, info.value.alias) == (name, "own")
    assert soon(lambda: granted(name))


def test_who_has_a_connection_goes_on(served: Place, name: str) -> None:
    with lock(name, using="own", ttl=60, renew=False) as lease, all_in_use():
        lease.renew()
        with lock(f"{name}:2", using="own"):
            pass
    assert soon(lambda: granted(name))


def test_a_lease_is_renewed_when_it_ends_in_time(
    served: Place, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with lock(name, using="own", ttl=6) as lease:
        with all_in_use():
            assert soon(lambda: "Renewing 1 locks failed" in caplog.text)
            assert REMEDY in caplog.text
            assert lease.remaining() < 5
        assert soon(lambda: lease.remaining() > 5)
        lease.check()


def test_a_lease_is_known_to_be_lost_when_it_does_not(served: Place, name: str) -> None:
    with loss_told() as told:
        lease = taken(name, ttl=1.5)
        with all_in_use():
            assert told.wait(15)
            time.sleep(0.1)
            with pytest.raises(LeaseLostError):
                lease.check()
    assert soon(lambda: granted(name))
