"""Holders and waiters killed and stopped at random, on Redis: no two holders, nothing left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from django_distlock.backends.redis import RedisBackend
from tests.faults import storm
from tests.faults.judging import judge, read
from tests.redis.tools import keys
from tests.servers import Redis

SECONDS = float(os.environ.get("DISTLOCK_STORM_SECONDS", "4"))
LEFT = 5.0  # seconds in which what the dead have left has to be gone


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("alias", ["redis", "scriptless-redis"])
def test_holders_and_waiters_killed_and_stopped(alias: str, server: Redis, tmp_path: Path) -> None:
    server.execute("FLUSHALL")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.faults.storm", alias, str(SECONDS), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(ran.stdout)
    seen = judge(read(tmp_path / "log"), storm.TTL + RedisBackend.grace)
    print(f"\n{alias} {told['hits']} {seen}")
    assert seen.faults == []
    assert set(told["codes"]) == {0}
    assert set(told["hits"]) == set(storm.HITS)
    assert seen.grants > 10
    end = time.monotonic() + LEFT
    while left := [key for key in keys(server) if waiting(key)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def waiting(key: str) -> bool:
    """Tell whether a key is of somebody who waits: all that is neither a record nor an index."""
    return key.rpartition("}:")[2].partition(":")[0] in ("q", "a", "m", "h", "w")
