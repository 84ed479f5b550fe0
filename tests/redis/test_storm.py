"""Holders and waiters killed and stopped at random, on Redis: no two holders, nothing left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from django_distlock import locks
from django_distlock.backends.redis import RedisBackend
from django_distlock.backends.redis.scripts import GRANT, PRESENCE, SAFETY
from tests.faults.judging import NO_HEIRS, Heirs
from tests.faults.shares import IN_REDIS
from tests.faults.weather import SECONDS, begin, end
from tests.redis.tools import keys
from tests.servers import Redis

LEFT = 5.0  # seconds in which what the dead have left has to be gone


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("alias", IN_REDIS)
def test_holders_and_waiters_killed_and_stopped(alias: str, server: Redis, tmp_path: Path) -> None:
    server.execute("FLUSHALL")
    # What was handed to one who stands still goes to the next when it was not claimed.
    heirs = Heirs(PRESENCE, GRANT + SAFETY) if locks[alias].queues else NO_HEIRS
    with begin(alias, tmp_path) as run:
        end(run, tmp_path, RedisBackend.grace, heirs=heirs)
    until = time.monotonic() + LEFT
    while left := [key for key in keys(server) if waiting(key)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def waiting(key: str) -> bool:
    """Tell whether a key is of somebody who waits: all that is neither a record nor an index."""
    return key.rpartition("}:")[2].partition(":")[0] in ("q", "a", "m", "h", "w")
