"""Database servers that end a session or hang: told in time, and then as before."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction

from django_distlock import LeaseLostError, LockBackendError, lock, locks
from tests.backends.outages import COMMAND, Place, loss_told, taken
from tests.backends.tools import STORES, Elsewhere, elsewhere, one_value, soon

CONNECT = 2.0
"""Seconds that connecting to a server that hangs takes: PostgreSQL's driver knows no less."""
MARGIN = 5.0


def took(work: Callable[[], Any]) -> tuple[float, Exception | None]:
    """Return how long ``work`` took, and the error that it raised."""
    began = time.monotonic()
    try:
        work()
    except Exception as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


# -- sessions that the server ends ---------------------------------------------------------------


def test_a_session_ended_between_two_calls(own: Place, name: str) -> None:
    lease = taken(name, renew=False)
    own.end_sessions()
    with lock(f"{name}:2", using="own"):
        pass
    own.end_sessions()
    lease.renew()
    own.end_sessions()
    lease.release()
    own.end_sessions()
    assert not lock(name, using="own").locked()


def test_a_session_whose_end_the_program_has_noticed(own: Place, name: str) -> None:
    """Django keeps the dead connection until the end of the request."""
    lease = taken(name, renew=False)
    for use in (lease.renew, taken(f"{name}:2").release, lease.release):
        own.end_sessions()
        with pytest.raises(OperationalError):
            one_value("own", "SELECT 1")
        use()
    with lock(name, using="own"):
        pass


def test_a_session_ended_inside_a_transaction(own: Place, name: str) -> None:
    """The program's transaction is gone, the lock is on a connection of ours and works."""
    with pytest.raises(Exception, match=r"connection|server"), transaction.atomic(using="own"):  # noqa: PT012
        with lock(f"{name}:1", using="own"):
            pass
        own.end_sessions()
        lease = taken(f"{name}:2")
        lease.release()
        one_value("own", "SELECT 1")
    connections["own"].close()
    assert elsewhere(lambda: taken(f"{name}:2").fencing_token)


@pytest.mark.parametrize("own", [{"CONN_HEALTH_CHECKS": True}], indirect=True, ids=["checked"])
def test_with_health_checks(own: Place, name: str) -> None:
    for number in range(3):
        with lock(f"{name}:{number}", using="own"):
            connections["own"].close_if_unusable_or_obsolete()  # as between two requests
            own.end_sessions()
    with transaction.atomic(using="own"), lock(f"{name}:4", using="own"):
        pass
    own.end_sessions()
    connections["own"].close_if_unusable_or_obsolete()
    with transaction.atomic(using="own"), lock(f"{name}:5", using="own"):
        pass


def test_the_watchdog_gets_over_an_ended_session(own: Place, name: str) -> None:
    with lock(name, using="own", ttl=3.0) as lease:
        end = time.monotonic() + 3.5
        while time.monotonic() < end:
            own.end_sessions()
            time.sleep(0.05)
        lease.check()


# -- a server that hangs -------------------------------------------------------------------------


def test_a_server_that_hangs_is_told_in_time(own: Place, name: str) -> None:
    taken(f"{name}:1").release()
    lease = taken(f"{name}:2", ttl=60, renew=False)
    own.server.pause()
    seconds, error = took(lambda: lock(name, using="own", wait=0.5).acquire())
    assert isinstance(error, LockBackendError)
    assert "hangs" in str(error)
    assert (error.name, error.alias) == (name, "own")
    assert seconds < 0.5 + 1.0 + MARGIN
    # That connection is closed, and what follows has to connect first.
    for verb in (lease.renew, lease.release):
        seconds, error = took(verb)
        assert isinstance(error, LockBackendError)
        assert seconds < max(COMMAND, CONNECT) + MARGIN
    lease.check()  # nothing is known, and its time is not up
    own.server.resume()
    lease.release()
    taken(name, wait=5).release()


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_an_open_connection_hangs_no_longer_than_the_limit(
    own: Place, name: str, verb: str
) -> None:
    lease = taken(name, ttl=60, renew=False)
    own.server.pause()
    seconds, error = took(getattr(lease, verb))
    assert isinstance(error, LockBackendError)
    assert seconds < COMMAND + MARGIN


def test_a_release_whose_answer_was_lost_is_no_lost_lease(own: Place, name: str) -> None:
    """The server carries it out when it goes on; to repeat it must not cry that all is undone."""
    lease = taken(name, ttl=60, renew=False)
    own.server.pause()
    with pytest.raises(LockBackendError):
        lease.release()
    own.server.resume()
    assert soon(lambda: not elsewhere(lock(name, using="own").locked))
    lease.release()


@pytest.mark.parametrize("own", [{"CONN_HEALTH_CHECKS": True}], indirect=True, ids=["checked"])
def test_a_server_that_hangs_when_its_health_is_asked_for(own: Place, name: str) -> None:
    taken(f"{name}:1").release()
    connections["own"].close_if_unusable_or_obsolete()  # as between two requests
    own.server.pause()
    seconds, error = took(lambda: lock(name, using="own", wait=0).acquire())
    assert isinstance(error, LockBackendError)
    assert seconds < 1.0 + COMMAND + MARGIN
    own.server.resume()
    taken(name, wait=5).release()


def test_a_first_use_of_a_server_that_hangs(own: Place, name: str) -> None:
    """No connection, and nothing known of the server: its version is a question, too."""
    own.server.pause()
    waiting = Elsewhere(lambda: took(lock(name, using="own", wait=0.5).acquire)).start()
    assert soon(waiting.done, CONNECT + COMMAND + MARGIN)
    assert isinstance(waiting.result()[1], LockBackendError)


def test_a_server_that_hangs_inside_a_transaction(own: Place, name: str) -> None:
    with transaction.atomic(using="own"):
        taken(f"{name}:1").release()
        own.server.pause()
        seconds, error = took(lambda: lock(name, using="own", wait=0.5).acquire())
        own.server.resume()
        assert isinstance(error, LockBackendError)
        assert seconds < 0.5 + 1.0 + MARGIN
        assert one_value("own", "SELECT 1") == 1  # the caller's own connection was not touched
        taken(f"{name}:2", wait=5).release()


def test_a_lease_runs_out_while_the_server_hangs(own: Place, name: str) -> None:
    with loss_told() as told:
        lease = taken(name, ttl=1.5)
        own.server.pause()
        assert told.wait(15)
    with pytest.raises(LeaseLostError):
        lease.check()


def test_a_short_hang_does_not_cost_the_lease(own: Place, name: str) -> None:
    with lock(name, using="own", ttl=3) as lease:
        own.server.pause()
        time.sleep(0.3)
        own.server.resume()
        lease.renew()
        lease.check()


def test_a_server_that_hangs_delays_no_other_aliases_renewals(own: Place, name: str) -> None:
    """The leases of both run in one process; those on a sound server outlast several ttls."""
    hung = taken(name, ttl=1.0)
    *_, other = (store for store in STORES if store in locks)  # MySQL is begun late
    with lock(name, using=other, ttl=2.4) as sound:
        own.server.pause()
        assert soon(lambda: hung.lost, 15.0)
        end = time.monotonic() + 2.7
        while time.monotonic() < end:
            sound.check()
            time.sleep(0.05)
