"""Keys of others in the same Redis cost nothing: no step goes over the keyspace."""

from __future__ import annotations

from typing import Any

import pytest

from django_distlock.backends.redis import RedisBackend
from tests.claims import claim, granted
from tests.redis.tools import Opener, calls
from tests.servers import Redis

OTHERS = 50_000
OVER_ALL = {"scan", "keys", "randomkey", "sort", "flushall", "flushdb"}


@pytest.mark.parametrize("options", [{}, {"SCRIPTING": False}], ids=["scripts", "transactions"])
def test_fifty_thousand_keys_of_others_cost_no_command(
    alone: Redis, opened: Opener, options: dict[str, Any]
) -> None:
    backend = opened(alone.url(), **options)
    everything(backend)  # once, so that scripts are known and the connection is open
    usual = counted(alone, backend)
    alone.execute("DEBUG", "POPULATE", str(OTHERS), "other", "16")
    assert int(alone.execute("DBSIZE")) >= OTHERS
    crowded = counted(alone, backend)
    assert crowded == usual
    assert crowded
    assert not OVER_ALL & set(crowded)


def everything(backend: RedisBackend) -> None:
    """Take a few locks, look at them in each way, clean, and free them."""
    claims = [claim(backend, f"lock {number}") for number in range(5)]
    for each in claims:
        granted(backend, each)
        assert backend.inspect(each.name) is not None
    assert len(list(backend.held())) == len(claims)
    assert backend.renew_many(claims) == [True] * len(claims)
    backend.clean(older_than=60)
    assert all(backend.release(each) for each in claims)
    assert list(backend.held()) == []


def counted(server: Redis, backend: RedisBackend) -> dict[str, int]:
    """Return how many commands of each kind all that takes, those inside of scripts, too."""
    before = calls(server)
    everything(backend)
    after = calls(server)
    made = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in made.items() if count and name != "info"}
