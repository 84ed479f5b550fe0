"""A real cluster of three nodes, and a master that Sentinel names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from django_distlock import LockBackendError, LockTimeoutError, lock, lock_all
from django_distlock.backends.redis import RedisBackend
from django_distlock.backends.redis.keys import keys_of
from django_distlock.cleaning import clean
from django_distlock.flow import run
from django_distlock.values import CleanPolicy
from tests.redis.tools import Opener, claim, granted, opener, started
from tests.servers import Redis, RedisCluster, Sentinel

LONG = 20.0
NAMES = [f"name {number}" for number in range(150)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    """Three masters."""
    with RedisCluster(persistent=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def clustered(cluster: RedisCluster) -> Iterator[RedisBackend]:
    """An alias on the cluster."""
    with opener() as opened:
        yield opened(cluster.url, CLUSTER=True)


def test_the_locks_spread_over_the_nodes(
    cluster: RedisCluster, clustered: RedisBackend
) -> None:
    claims = [claim(clustered, name) for name in NAMES]
    tokens = [granted(clustered, each) for each in claims]
    assert len({keys_of("distlock:1", each.key).index for each in claims}) > 50
    assert all(int(node.execute("DBSIZE")) > 20 for node in cluster.nodes)
    shown = {info.name: info.fencing_token for info in clustered.held()}
    assert shown == dict(zip(NAMES, tokens, strict=True))
    assert clustered.renew_many(claims) == [True] * len(claims)
    assert all(clustered.release(each) for each in claims)
    assert clustered.renew_many(claims) == [False] * len(claims)
    assert list(clustered.held()) == []


def test_waiting_on_a_cluster(clustered: RedisBackend) -> None:
    for name in NAMES[:5]:
        mine = lock(name, using=clustered.alias)
        with mine as lease:
            with pytest.raises(LockTimeoutError):
                started_waiting(clustered, name)
            thread = started(lambda mine=mine: mine.__enter__() and mine.__exit__(None, None, None))
            info = clustered.inspect(name)
            assert info is not None
            assert info.fencing_token == lease.fencing_token
        thread.join(LONG)
        assert not thread.is_alive()
        assert not mine.locked()


def started_waiting(backend: RedisBackend, name: str) -> None:
    """Wait for a name on a thread of its own, for a moment, and raise what it raises."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with lock(name, using=backend.alias, wait=0.1):
                pass
        except BaseException as error:
            errors.append(error)

    started(work).join(LONG)
    if errors:
        raise errors[0]


def test_event_loops_on_a_cluster(clustered: RedisBackend) -> None:
    inside: list[int] = []

    async def turn(number: int) -> None:
        async with lock("shared", using=clustered.alias, wait=LONG):
            inside.append(number)
            await asyncio.sleep(0.001)
            assert inside.pop() == number

    async def main() -> None:
        await asyncio.gather(*(turn(number) for number in range(6)))
        async with lock_all(*NAMES[:10], using=clustered.alias):
            assert len([info async for info in clustered.aheld("name")]) == 10

    for _ in range(2):
        asyncio.run(main())


def test_cleaning_a_cluster(clustered: RedisBackend) -> None:
    for name in NAMES[:20]:
        granted(clustered, claim(clustered, name, ttl=0.05))
    left = claim(clustered, "left")
    granted(clustered, left)
    time.sleep(0.1)
    done = run(clean(clustered, CleanPolicy(older_than=0.0), clock=clustered.clock))
    assert done.removed == 20
    assert [info.name for info in clustered.held()] == ["left"]
    assert clustered.release(left)


def test_a_node_that_is_no_cluster_client(
    cluster: RedisCluster, opened: Opener
) -> None:
    backend = opened(cluster.url)
    with pytest.raises(LockBackendError, match="'CLUSTER': True"):
        for name in NAMES:
            backend.call("release", claim(backend, name))


def test_sentinel_names_the_master(opened: Opener, name: str) -> None:
    with Redis(persistent=False) as master, Sentinel(master) as sentinel:
        backend = opened("redis://main/0", SENTINELS=[(sentinel.host, sentinel.port)])
        with lock(name, using=backend.alias):
            assert len(master.execute("KEYS", "*distlock*").split()) == 2

        async def main() -> None:
            async with lock(name, using=backend.alias):
                assert len(master.execute("KEYS", "*distlock*").split()) == 2

        asyncio.run(main())
