"""The database's clock set back and forth under holders: never two who may both be sure.

What the design promises, and no more: a clock set back grants nothing early and lets tokens rise;
one set forward ends leases early at the store, which their holders learn from the next renewal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.core.management import call_command

from django_distlock import LeaseLostError, LockNotHeldError, lock, locks
from tests.backends.outages import loss_told, taken
from tests.backends.tools import SERVERS, database_alias, elsewhere, one_value
from tests.faults.clocks import HOUR, ClockedServer, clocked
from tests.faults.places import opened
from tests.servers import ByStore


@pytest.fixture(scope="module", params=SERVERS)
def clocked_server(request: pytest.FixtureRequest) -> Iterator[ClockedServer]:
    """A server whose clock can be turned, with a database "own"."""
    with clocked(request.param) as server:
        with database_alias("own", server.create_database("own")):
            call_command("migrate", database="own", verbosity=0)
        yield server


@pytest.fixture(params=["auto", "portable"])
def turned(
    request: pytest.FixtureRequest, clocked_server: ClockedServer
) -> Iterator[ClockedServer]:
    """The server, with a clock that goes right, and the alias "own" on it."""
    settings = clocked_server.settings("own") | {"CONN_MAX_AGE": None}
    clocked_server.turn(0)
    options = {"SQL": request.param, "COMMAND_TIMEOUT": 20}
    with opened(clocked_server.name, settings, clocked_server, **options):
        yield clocked_server


def clock_of(server: ClockedServer) -> float:
    """Return what the server's clock shows, in seconds since 1970."""
    sql = ByStore(
        {
            "postgresql": "SELECT extract(epoch FROM clock_timestamp())",
            "mariadb": "SELECT unix_timestamp(current_timestamp(6))",
        }
    )
    return float(one_value("own", sql[server.name]))


def refused(name: str) -> bool:
    """Tell whether somebody else is refused the lock, which is free again afterwards."""

    def attempt() -> bool:
        lease = lock(name, using="own", wait=0).acquire()
        if lease:
            lease.release()
        return lease is None

    return elsewhere(attempt)


def test_the_clock_is_really_turned(turned: ClockedServer) -> None:
    """Else nothing below would mean anything."""
    for hours in (-1, 1, 0):
        turned.turn(hours * HOUR)
        assert abs(clock_of(turned) - time.time() - hours * HOUR) < 30


def test_set_back_under_a_holder(turned: ClockedServer, name: str) -> None:
    """It keeps its lock, may renew and release it, and the next token is higher."""
    lease = taken(name, ttl=5, renew=False)
    turned.turn(-HOUR)
    assert refused(name)
    lease.renew()
    lease.check()
    assert refused(name)
    info = locks["own"].inspect(name)
    assert info
    assert info.expires_at
    assert info.expires_at.timestamp() < time.time() - HOUR / 2  # by the clock of now
    lease.release()
    later = elsewhere(lambda: taken(name, ttl=5, renew=False))
    assert later.fencing_token == lease.fencing_token + 1  # the clock is behind the last token
    later.release()


def test_set_back_under_the_watchdog(turned: ClockedServer, name: str) -> None:
    with lock(name, using="own", ttl=3) as lease:
        turned.turn(-HOUR)
        time.sleep(4)
        lease.check()
        assert refused(name)
    assert not refused(name)


def test_set_back_under_a_holder_who_has_vanished(turned: ClockedServer, name: str) -> None:
    """Nobody else gets it before the clock has made good for the step, or an operator frees it."""
    lease = taken(name, ttl=1.5, renew=False)
    turned.turn(-HOUR)
    time.sleep(1.7)
    with pytest.raises(LeaseLostError):
        lease.check()
    assert refused(name)
    turned.turn(0)
    assert not refused(name)
    # The same again, and it is not waited for.
    vanished = elsewhere(lambda: taken(name, ttl=1.5, renew=False))
    turned.turn(-HOUR)
    time.sleep(1.7)
    locks["own"].force_release(name, fencing_token=vanished.fencing_token)
    with lock(name, using="own", wait=0) as later:
        assert later.fencing_token > vanished.fencing_token


def test_set_forward_under_a_holder(turned: ClockedServer, name: str) -> None:
    """The store grants it anew, and the holder is told by its next renewal, before its ttl."""
    with loss_told() as told:
        lease = taken(name, ttl=9)
        turned.turn(HOUR)
        following = elsewhere(lambda: taken(name, ttl=5, renew=False))
        assert told.wait(8)
        assert lease.lost
    assert following.fencing_token > lease.fencing_token
    with pytest.raises(LockNotHeldError):
        lease.release()
    # And back again: who holds it now holds it still, and what follows is higher still.
    turned.turn(0)
    assert refused(name)
    following.renew()
    following.release()
    with lock(name, using="own", wait=0) as last:
        assert last.fencing_token == following.fencing_token + 1


def test_tokens_rise_over_every_step_of_the_clock(turned: ClockedServer, name: str) -> None:
    tokens = []
    for hours in (0, 1, -1, 0, -3, 2, 1, 0):
        turned.turn(hours * HOUR)
        with lock(name, using="own", wait=0) as lease:
            tokens.append(lease.fencing_token)
    assert tokens == sorted(set(tokens))


def test_set_back_after_the_row_was_cleaned_away(turned: ClockedServer, name: str) -> None:
    """By less than what rows are kept for: the clock alone is then ahead of the lost token."""
    with lock(name, using="own") as lease:
        pass
    turned.turn(3 * HOUR)
    assert locks["own"].clean(older_than=2 * HOUR).removed >= 1
    assert not locks["own"].clean(older_than=2 * HOUR).removed
    turned.turn(2 * HOUR)
    with lock(name, using="own", wait=0) as later:
        assert later.fencing_token > lease.fencing_token
