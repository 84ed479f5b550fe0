"""Row locks: sessions that the server ends, servers that die or hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    lock,
)
from django_distlock.values import Claim, Grant
from tests.backends.outages import COMMAND, Place
from tests.backends.rowlocks import (
    row,
    row_alias,
    taken,
    waits,
)
from tests.backends.tools import (
    Elsewhere,
    soon,
)


@pytest.fixture
def rows(own: Place) -> Iterator[str]:
    """The row backend on a server that may be disturbed."""
    with row_alias("rows", "own", OPTIONS={"COMMAND_TIMEOUT": COMMAND}):
        yield "rows"


def test_the_servers_idle_limit_is_the_ttl(rows: str, name: str) -> None:
    lease = taken(name, rows, ttl=0.3, renew=False)
    backend = row(rows)
    other = Elsewhere(lambda: taken(name, rows, wait=backend.max_ttl(0.3) + 1)).start()
    theirs = other.result()
    assert theirs.fencing_token > lease.fencing_token
    for call in (lease.renew, lease.release):
        with pytest.raises(LeaseLostError):
            call()
    theirs.release()


def test_a_session_ended_by_the_server_is_a_lost_lease(own: Place, rows: str, name: str) -> None:
    for call in ("renew", "release"):
        lease = taken(name, rows, renew=False)
        own.end_sessions()
        assert not lock(name, using=rows).locked()
        with pytest.raises(LeaseLostError):
            getattr(lease, call)()


def test_idle_sessions_ended_by_the_server_are_opened_again(
    own: Place, rows: str, name: str
) -> None:
    for _ in range(2):
        with lock(name, using=rows):
            pass
        own.end_sessions()


def test_the_watchdog_tells_of_an_ended_session(own: Place, rows: str, name: str) -> None:
    lost = threading.Event()
    lease = taken(name, rows, ttl=1.5)
    lease.on_lost(lambda _: lost.set())
    own.end_sessions()
    assert lost.wait(1.5)
    assert lease.lost


def test_a_server_killed_while_we_hold_and_wait(own: Place, rows: str, name: str) -> None:
    lease = taken(name, rows, renew=False)
    waiter = Elsewhere(lock(name, using=rows, wait=20).acquire).start()
    assert soon(lambda: waits(name, rows))
    time.sleep(0.1)
    own.server.kill()
    with pytest.raises(LockBackendError):
        waiter.result()
    own.server.start()
    with lock(name, using=rows, wait=5) as theirs:
        assert theirs.fencing_token > lease.fencing_token
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_a_server_that_hangs_is_told_in_time(own: Place, rows: str, name: str) -> None:
    taken(name, rows).release()
    own.server.pause()
    began = time.monotonic()
    with pytest.raises(LockBackendError, match="no answer"):
        lock(name, using=rows, wait=0).acquire()
    assert time.monotonic() - began < COMMAND + 0.6
    own.server.resume()
    taken(name, rows, wait=5).release()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_lease_on_a_server_that_hangs_is_given_up(
    own: Place, rows: str, name: str, verb: str
) -> None:
    """Whether it was done is not known; the session is closed, which frees the lock in any case."""
    lease = taken(name, rows, renew=False)
    own.server.pause()
    with pytest.raises(LockBackendError, match="no answer"):
        getattr(lease, verb)()
    own.server.resume()
    taken(name, rows, wait=5).release()
    if verb == "renew":
        with pytest.raises(LeaseLostError):
            lease.renew()


def test_an_owner_whose_session_has_ended_is_granted_the_lock_anew(
    own: Place, rows: str, name: str
) -> None:
    backend = row(rows)
    claim = Claim(name, backend.key(name), "mine", 20.0)
    first = backend.try_acquire(claim, 1.0)
    assert backend.try_acquire(claim, 1.0) == first
    own.end_sessions()
    again = backend.try_acquire(claim, 1.0)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert again.fencing_token > first.fencing_token
    assert backend.release(claim)
