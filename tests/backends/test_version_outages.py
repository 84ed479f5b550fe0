"""Optimistic locks when the server is killed, or ends their connections."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from django_distlock import Lease, LockBackendError, lock
from tests.backends.outages import COMMAND, Place
from tests.backends.tools import Elsewhere, lock_alias, soon

VERSION = "django_distlock.backends.version.VersionBackend"


@pytest.fixture
def versions(own: Place) -> Iterator[str]:
    """The version backend on a server that may be disturbed."""
    options = {"COMMAND_TIMEOUT": COMMAND}
    with lock_alias("versions", BACKEND=VERSION, LOCATION="own", OPTIONS=options):
        yield "versions"


def taken(name: str, using: str) -> Lease:
    """Take a lock."""
    lease = lock(name, using=using, ttl=20, renew=False).acquire()
    assert lease
    return lease


def test_a_server_killed_while_we_hold_and_wait(own: Place, versions: str, name: str) -> None:
    """The hold is in the table, and so outlives the server; who waits is told, or waits on."""
    lease = taken(name, versions)
    waiter = Elsewhere(lock(name, using=versions, wait=20).acquire).start()
    time.sleep(0.1)
    own.server.kill()
    with pytest.raises(LockBackendError):
        waiter.result()
    with pytest.raises(LockBackendError, match="Look at"):
        lock(name, using=versions, wait=0).acquire()
    own.server.start()
    assert soon(lambda: lock(name, using=versions).locked())
    assert Elsewhere(lock(name, using=versions, wait=0).acquire).start().result() is None
    lease.renew()
    lease.release()
    with lock(name, using=versions, wait=5) as theirs:
        assert theirs.fencing_token > lease.fencing_token


def test_a_connection_that_the_server_has_ended_is_opened_again(
    own: Place, versions: str, name: str
) -> None:
    lease = taken(name, versions)
    for call in (lease.renew, lease.check, lease.release):
        own.end_sessions()
        call()
    own.end_sessions()
    taken(name, versions).release()
