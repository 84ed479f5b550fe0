"""Cleaning the index: leases that ran out and that nobody has released are taken off it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from django.conf import settings

from django_distlock import locks
from django_distlock.backends.base import BaseLockBackend
from tests.backends.tools import lock_alias
from tests.claims import claim, granted, soon
from tests.commands.tools import Ran
from tests.conftest import REDIS
from tests.redlock import NODES
from tests.servers import Redis

DATABASE = 5  # of these tests alone, so that what is counted is theirs
LAPSED = 20

COUNT = """
local members = 0
for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind = redis.call('TYPE', key).ok
    if kind == 'set' then members = members + redis.call('SCARD', key) end
    if kind == 'zset' then members = members + redis.call('ZCARD', key) end
end
return members
"""
LATER = """
for _, key in ipairs(redis.call('KEYS', '*')) do
    local left = redis.call('PTTL', key)
    if left > 0 then redis.call('PEXPIRE', key, left - 61000) end
end
"""


class Kept(NamedTuple):
    """An alias, and the servers that keep its locks."""

    backend: BaseLockBackend
    nodes: list[Redis]

    def indexed(self) -> list[int]:
        """Return how many names each server has in its index."""
        return [int(self.run(node, COUNT)) for node in self.nodes]

    def later(self) -> None:
        """Have a minute pass, as far as the locks can tell."""
        for node in self.nodes:
            self.run(node, LATER)

    def run(self, node: Redis, script: str) -> str:
        """Run a script in the database of these tests."""
        return node.execute("-n", str(DATABASE), "EVAL", script, "0")


@pytest.fixture(params=["redis", "scriptless-redis", "redlock-3"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """An alias with a held lock, and those of holders that died more than a minute ago."""
    nodes = NODES[:3] if request.param == "redlock-3" else REDIS
    for node in nodes:
        node.execute("-n", str(DATABASE), "FLUSHDB")
    urls = [node.url(DATABASE) for node in nodes]
    conf = settings.DISTLOCKS[request.param] | {"LOCATION": urls if len(urls) > 1 else urls[0]}
    with lock_alias("cleaned", **conf, RETENTION=600) as alias:
        backend = locks[alias]
        kept = Kept(backend, nodes)
        held = claim(backend, "held", ttl=300.0)
        granted(backend, held)
        dead = [f"dead {number}" for number in range(LAPSED)]
        for name in dead:
            granted(backend, claim(backend, name, ttl=2.0))
        # The last of three servers may hear of a grant after it counts.
        soon(lambda: kept.indexed() == [LAPSED + 1] * len(nodes))
        soon(lambda: all(backend.inspect(name) is None for name in dead))
        kept.later()
        yield kept
        assert kept.indexed() == [1] * len(nodes)
        assert [info.name for info in backend.held()] == ["held"]
        assert backend.release(held)
        soon(lambda: kept.indexed() == [0] * len(nodes))


def test_leases_that_ran_out_are_taken_off_the_index(kept: Kept) -> None:
    dead, seen = LAPSED * len(kept.nodes), (LAPSED + 1) * len(kept.nodes)
    told = kept.backend.clean(older_than=60, dry_run=True)
    assert (told.removed, told.seen) == (dead, seen)
    assert kept.indexed() == [LAPSED + 1] * len(kept.nodes)
    done = kept.backend.clean(older_than=60, batch=7)
    assert (done.removed, done.seen) == (dead, seen)
    assert kept.backend.clean(older_than=60).removed == 0


def test_the_command_cleans_a_redis(kept: Kept) -> None:
    said = f"{LAPSED * len(kept.nodes)} of {(LAPSED + 1) * len(kept.nodes)}"
    words = ("cleanlocks", "--using", "cleaned", "--older-than", "60")
    for more, done in ((("--dry-run",), "would be removed"), ((), "removed")):
        ran = Ran(*words, *more)
        assert (ran.err, ran.failed) == ("", "")
        assert ran.out.startswith(f"cleaned: {said} {done} (idle for ")
