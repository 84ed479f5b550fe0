"""The old recipe by SETNX and GETSET breaks, step by step; and the demo runs it, marked unsafe."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from django_distlock.conf import parse
from django_distlock.core.values import Grant, Refusal
from testproject.unsafe.getset import GetSetBackend
from tests.claims import claim
from tests.servers import Redis

TTL = 0.05


@pytest.fixture
def machines(server: Redis) -> Iterator[list[GetSetBackend]]:
    """The same alias on three machines."""
    conf = parse("getset", {"BACKEND": "...", "LOCATION": server.url()})
    made = [GetSetBackend("getset", conf) for _ in range(3)]
    yield made
    for each in made:
        each.close()


def test_a_slow_holder_deletes_the_next_ones_lock(machines: list[GetSetBackend], name: str) -> None:
    a, b, c = machines
    slow, second, third = claim(a, name, TTL), claim(b, name), claim(c, name)
    assert isinstance(a.try_acquire(slow, 20.0), Grant)
    time.sleep(1.2 * TTL)
    assert isinstance(b.try_acquire(second, 20.0), Grant)
    a.release(slow)
    assert isinstance(c.try_acquire(third, 20.0), Grant)  # while b still holds it
    assert b.release(second)
    assert c.release(third)


def test_the_loser_writes_the_winners_time(machines: list[GetSetBackend], name: str) -> None:
    a, b, c = machines
    assert isinstance(a.try_acquire(claim(a, name, TTL), 20.0), Grant)
    time.sleep(1.2 * TTL)
    # b and c have both read the time that is over. b is first; c only learns that it was not.
    key = f"getset:{b.key(name)}"
    read = c.client.get(key)
    winner = claim(b, name, TTL)
    assert isinstance(b.try_acquire(winner, 20.0), Grant)
    hour = f"{time.time() + 3600:.6f}"
    assert c.client.getset(key, hour) != read
    time.sleep(1.2 * TTL)
    # So nobody holds it, and nobody gets it for an hour: the winner's 50 ms are over.
    assert isinstance(a.try_acquire(claim(a, name), 20.0), Refusal)
    info = a.inspect(name)
    assert info is not None
    assert info.expires_at is not None
    assert info.expires_at.timestamp() > time.time() + 3000
    a.client.delete(key)


def test_a_clock_that_is_ahead_takes_a_lock_that_is_held(
    machines: list[GetSetBackend], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, _ = machines
    mine, theirs = claim(a, name, 60), claim(b, name, 60)
    assert isinstance(a.try_acquire(mine, 20.0), Grant)
    now = time.time
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now() + 120)
        assert isinstance(b.try_acquire(theirs, 20.0), Grant)
    assert a.renew(mine)  # and neither knows
    assert b.renew(theirs)
    b.release(theirs)
