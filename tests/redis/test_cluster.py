"""A real cluster of three nodes, and a master that Sentinel names."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import hiredis
import pytest
from redis.exceptions import ConnectionError

from django_distlock import Lock, LockBackendError, LockTimeoutError, lock, lock_all
from django_distlock.backends.redis import RedisBackend
from django_distlock.backends.redis.records import keys_of
from django_distlock.core.cleaning import clean
from django_distlock.core.flow import run
from django_distlock.core.values import Claim, CleanPolicy, Grant
from tests.claims import claim, granted, started
from tests.redis.tools import Opener, opener
from tests.servers import Redis, RedisCluster, Sentinel, ServerError
from tests.servers.redis import wait_until

LONG = 20.0
MINUTE = 60.0  # a failover has pauses of its own, of up to ten seconds
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


def test_the_locks_spread_over_the_nodes(cluster: RedisCluster, clustered: RedisBackend) -> None:
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


def cut_off(cluster: RedisCluster) -> None:
    """Have every node close its clients' connections."""
    for node in cluster.nodes:
        node.execute("CLIENT", "KILL", "TYPE", "normal")


def test_connections_that_the_nodes_have_closed(
    cluster: RedisCluster, clustered: RedisBackend, name: str
) -> None:
    """What may be sent again is; of a release nobody knows then."""
    mine = claim(clustered, name)
    granted(clustered, mine)
    cut_off(cluster)
    assert clustered.renew(mine)
    clients: Any = clustered._clients
    for again in (clients.ask_all, partial(clients.ask_all, resend=False)):
        cut_off(cluster)
        command = ("GET", keys_of("distlock:1", mine.key).record)
        try:
            (answer,) = again([command], 1.0)
        except ConnectionError:
            assert again is not clients.ask_all
        else:
            assert answer
    assert [info.name for info in clustered.held(name)] == [name]  # asks every node
    cut_off(cluster)
    assert [info.name for info in clustered.held(name)] == [name]
    cut_off(cluster)
    assert clustered.release(mine)


def test_the_same_from_an_event_loop(
    cluster: RedisCluster, clustered: RedisBackend, name: str
) -> None:
    mine = claim(clustered, name)
    command = ("GET", keys_of("distlock:1", mine.key).record)
    clients: Any = clustered._aclients

    async def main() -> None:
        assert isinstance(await clustered.atry_acquire(mine, LONG), Grant)
        cut_off(cluster)
        assert await clustered.arenew(mine)
        cut_off(cluster)
        assert all(await clients.ask_all([command], 1.0))
        cut_off(cluster)
        with contextlib.suppress(ConnectionError):
            await clients.ask_all([command], 1.0, resend=False)
        cut_off(cluster)
        assert await clustered.arelease(mine)

    asyncio.run(main())


def test_waiting_on_a_cluster(clustered: RedisBackend) -> None:
    for name in NAMES[:5]:
        mine = lock(name, using=clustered.alias)
        with mine as lease:
            with pytest.raises(LockTimeoutError):
                started_waiting(clustered, name)
            thread = started(partial(enter_and_leave, mine))
            info = clustered.inspect(name)
            assert info is not None
            assert info.fencing_token == lease.fencing_token
        thread.join(LONG)
        assert not thread.is_alive()
        assert not mine.locked()


def enter_and_leave(lock: Lock) -> None:
    """Wait for a lock, and free it."""
    with lock:
        pass


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


def test_a_node_that_is_no_cluster_client(cluster: RedisCluster, opened: Opener) -> None:
    backend = opened(cluster.url)
    with pytest.raises(LockBackendError, match="'CLUSTER': True"):
        release_all(backend)


def test_each_master_of_a_cluster_is_checked(cluster: RedisCluster, opened: Opener) -> None:
    backend = opened(cluster.url, CLUSTER=True)
    assert backend.check_deploy() == []
    node = cluster.nodes[2]
    node.execute("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    try:
        (message,) = backend.check_deploy()
    finally:
        node.execute("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    assert message.id == "distlock.W012"
    assert str(node.port) in message.msg


def release_all(backend: RedisBackend) -> None:
    """Release what nobody holds, on all nodes."""
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
        other = opened("redis://nobody/0", SENTINELS=[(sentinel.host, sentinel.port)])
        with pytest.raises(LockBackendError, match="No master found for 'nobody'"):
            lock(name, using=other.alias).acquire(wait=0)


def test_hiredis_is_given_no_numbers(
    server: Redis, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It crashes the process where a signal's handler raises while it makes a text of one."""
    given: list[tuple[Any, ...]] = []
    real = hiredis.pack_command

    def pack(words: tuple[Any, ...]) -> bytes:
        given.append(words)
        return bytes(real(words))

    monkeypatch.setattr(hiredis, "pack_command", pack)
    with Redis(persistent=False) as master, Sentinel(master) as sentinel:
        there = {"SENTINELS": [(sentinel.host, sentinel.port)]}
        for backend in (opened(server.url(3)), opened("redis://main/3", **there)):
            with lock(name, using=backend.alias):
                assert [info.name for info in backend.held()] == [name]
    words = [word for command in given for word in command]
    assert {b"SELECT", b"SENTINEL"} <= {*words}
    assert [word for word in words if not isinstance(word, str | bytes)] == []


def test_the_master_that_sentinel_chose_takes_over(opened: Opener, name: str) -> None:
    with (
        Redis(persistent=False) as master,
        Redis(persistent=False, replica_of=master) as replica,
        Sentinel(master) as sentinel,
    ):
        replica.wait_for_link()
        backend = opened("redis://main/0", SENTINELS=[(sentinel.host, sentinel.port)])
        mine = claim(backend, name)
        before = granted(backend, mine)
        wait_until(lambda: took_over(sentinel, replica), "the new master", MINUTE)
        wait_until(lambda: master.role == "slave", "the old master", MINUTE)
        # The old one refuses to be written to; the connection is made anew, to the new one.
        later = claim(backend, f"{name}2")
        wait_until(lambda: answered(backend, later), "the new master's answer", MINUTE)
        assert replica.info("connected_clients") != "0"
        assert backend.release(later)
        backend.release(mine)
        last = claim(backend, name)
        assert granted(backend, last) > before
        assert backend.release(last)


def took_over(sentinel: Sentinel, replica: Redis) -> bool:
    """Tell whether a replica is the master; if it is not, and none is under way, order a failover.

    Sentinel refuses one until it knows the replica well, and gives one up that takes too long.
    """
    now = replica.role
    if now == "slave":
        with contextlib.suppress(ServerError):
            sentinel.execute("SENTINEL", "FAILOVER", "main")
    return now == "master"


def answered(backend: RedisBackend, mine: Claim) -> bool:
    """Tell whether the lock could be had."""
    try:
        backend.call("try_acquire", mine, LONG)
    except LockBackendError:
        return False
    return True


def test_a_slot_that_has_moved(opened: Opener) -> None:
    with RedisCluster(persistent=False) as cluster:
        backend = opened(cluster.url, CLUSTER=True)
        mine = claim(backend, "x")
        tag = keys_of("distlock:1", mine.key).index.decode()
        slot = cluster.nodes[0].execute("CLUSTER", "KEYSLOT", tag)
        granted(backend, mine)
        assert backend.release(mine)
        owner = next(each for each in cluster.nodes if each.execute("DBSIZE") != "0")
        other = next(each for each in cluster.nodes if each is not owner)
        owner.execute("FLUSHALL")  # a slot with keys is not given away like this
        number = other.execute("CLUSTER", "MYID")
        for node in (other, owner, *cluster.nodes):
            node.execute("CLUSTER", "SETSLOT", slot, "NODE", number)
        later = claim(backend, "x")
        granted(backend, later)
        assert other.execute("DBSIZE") != "0"
        assert [info.name for info in backend.held()] == ["x"]

        async def main() -> None:
            assert await backend.arenew(later)
            assert await backend.arelease(later)

        asyncio.run(main())
