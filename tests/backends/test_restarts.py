"""Database servers that die and come back, under leases and under those who wait."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import DatabaseError, connections, transaction

from django_distlock import Lease, LeaseLostError, LockBackendError, lock, locks
from django_distlock.core.watchdog import worker_of
from tests.backends.outages import Place, loss_told, taken
from tests.backends.tools import LIMIT, Elsewhere, elsewhere, one_value, opened, soon

KILLED = r"Look at (the database server|HOST, PORT and OPTIONS) of DATABASES\['own'\]"
"""What is told in the middle of a statement, or when the next one connects."""


def test_killed_while_waiting(own: Place, name: str) -> None:
    holder = elsewhere(lambda: taken(name, ttl=60, renew=False))
    asked = threading.Event()

    def wait() -> Lease | None:
        connections["own"].ensure_connection()
        asked.set()
        return lock(name, using="own", wait=LIMIT).acquire()

    waiter = Elsewhere(wait).start()
    assert asked.wait(5)
    time.sleep(0.2)
    own.server.kill()
    with pytest.raises(LockBackendError, match=KILLED) as info:
        waiter.result()
    assert info.value.name == name
    own.server.start()
    assert lock(name, using="own", wait=0).acquire() is None
    holder.release()


def test_killed_while_holding_and_back_in_time(own: Place, name: str) -> None:
    """A committed grant outlives the crash: the lease goes on, and the watchdog renews it."""
    with lock(name, using="own", ttl=60) as lease:
        token = lease.fencing_token
        own.server.kill()
        own.server.start()
        lease.renew()
        lease.check()
        assert elsewhere(lambda: lock(name, using="own", wait=0).acquire()) is None
    with lock(name, using="own") as later:
        assert later.fencing_token > token


def test_restarted_under_the_watchdog(own: Place, name: str) -> None:
    # Longer than a busy machine's server takes to come back; its third is when it is renewed.
    with lock(name, using="own", ttl=30) as lease:
        first = time.monotonic() + lease.remaining()
        own.server.restart()
        assert soon(lambda: time.monotonic() + lease.remaining() > first + 1, 30)
        lease.check()


def test_killed_while_holding_and_gone_for_too_long(own: Place, name: str) -> None:
    lease = taken(name, ttl=1.5)
    with loss_told() as told:
        own.server.kill()
        assert told.wait(15)
    assert lease.lost
    with pytest.raises(LeaseLostError):
        lease.release()
    own.server.start()
    taken(name, wait=5).release()


def test_killed_inside_a_transaction_that_keeps_the_lock(own: Place, name: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(using="own"):  # noqa: PT012
        taken(name, ttl=2).release()
        own.server.kill()
        own.server.start()
        one_value("own", "SELECT 1")
    connections["own"].close()
    taken(name, wait=5).release()


def test_a_release_that_failed_can_be_repeated(own: Place, name: str) -> None:
    lease = taken(name, ttl=60)
    own.server.kill()
    with pytest.raises(LockBackendError):
        lease.release()
    own.server.start()
    lease.release()
    assert not lock(name, using="own").locked()


def test_a_failed_block_is_released_when_the_server_is_back(own: Place, name: str) -> None:
    gate = threading.Event()
    worker_of(locks["own"]).submit(lambda: opened(gate))
    with pytest.raises(LockBackendError), lock(name, using="own", ttl=60):
        own.server.kill()
    own.server.start()
    # The block is over, so its lock is nobody's, however soon it is asked for again.
    assert lock(name, using="own", wait=0).acquire() is None
    gate.set()
    taken(name, wait=8).release()
