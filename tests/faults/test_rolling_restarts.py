"""A planned restart of every server of a cluster, one after the other, is no incident.

Threads and tasks take locks all the time meanwhile, and have the time to wait. None of them is told
of an error, neither while it waits nor at a release, when its work is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import pytest

from django_distlock import Lease, Lock, LockError, lock
from django_distlock.backends.base import BaseLockBackend
from tests.claims import started
from tests.consul import tools as consul
from tests.etcd import tools as etcd
from tests.redis import tools as redis
from tests.servers import (
    Consul,
    ConsulCluster,
    EtcdCluster,
    Redis,
    RedisCluster,
    Sentinel,
    ServerError,
    ZooKeeperCluster,
    chosen,
)
from tests.servers.redis import wait_until
from tests.zookeeper import tools as zookeeper

THREADS, TASKS, NAMES = 4, 4, 3
TTL, WAIT, LONG = 30.0, 60.0, 120.0

Restarts = Iterator[None]
"""Restarts a server each time that it is asked for the next."""


class Load:
    """Threads, and tasks of one event loop, which take a few locks again and again."""

    def __init__(self, backend: BaseLockBackend) -> None:
        self.alias = backend.alias
        self.errors: list[str] = []
        self.grants = 0
        self._tokens: dict[str, int] = {}
        self._over = threading.Event()
        self._threads = [started(partial(self._on_thread, each)) for each in range(THREADS)]
        self._threads.append(started(lambda: asyncio.run(self._on_loop())))

    def _lock(self, number: int) -> Lock:
        return lock(f"load-{number % NAMES}", using=self.alias, ttl=TTL, wait=WAIT)

    def _enter(self, lease: Lease) -> None:
        name, token = lease.name, lease.fencing_token or 0
        if token <= self._tokens.get(name, 0):
            self.errors.append(f"the token {token} of {name} follows {self._tokens[name]}")
        self._tokens[name] = token
        self.grants += 1

    def _on_thread(self, number: int) -> None:
        while not self._over.is_set():
            number += 1
            try:
                with self._lock(number) as lease:
                    self._enter(lease)
                    time.sleep(0.02)
            except LockError as error:
                self.errors.append(repr(error))

    async def _on_loop(self) -> None:
        async def task(number: int) -> None:
            while not self._over.is_set():
                number += 1
                try:
                    async with self._lock(number) as lease:
                        self._enter(lease)
                        await asyncio.sleep(0.02)
                except LockError as error:
                    self.errors.append(repr(error))

        await asyncio.gather(*(task(number) for number in range(TASKS)))

    def goes_on(self) -> None:
        """Wait until more locks were granted."""
        before = self.grants
        wait_until(lambda: self.grants > before + 50, "the load", LONG)

    def end(self) -> None:
        """Have all come to their end."""
        self._over.set()
        for thread in self._threads:
            thread.join(LONG)
            assert not thread.is_alive()


@contextmanager
def on_etcd() -> Iterator[tuple[BaseLockBackend, Restarts]]:
    with EtcdCluster() as cluster, etcd.opener() as opened:

        def restarts() -> Restarts:
            for node in cluster.nodes:
                node.restart()
                cluster.bring_up()
                yield

        yield opened(cluster.urls), restarts()


@contextmanager
def on_consul() -> Iterator[tuple[BaseLockBackend, Restarts]]:
    with ConsulCluster() as cluster, consul.opener() as opened:

        def restarts() -> Restarts:
            for node in cluster.nodes:
                node.restart()
                cluster.wait()
                yield

        yield opened(cluster.urls), restarts()


@contextmanager
def on_zookeeper() -> Iterator[tuple[BaseLockBackend, Restarts]]:
    with ZooKeeperCluster() as cluster, zookeeper.opener() as opened:

        def restarts() -> Restarts:
            for member in cluster.members:
                member.restart()
                cluster.wait()
                yield

        yield opened(cluster.address, session=10.0), restarts()


@contextmanager
def on_redis_with_sentinel() -> Iterator[tuple[BaseLockBackend, Restarts]]:
    with ExitStack() as stack:
        master = stack.enter_context(Redis())
        replicas = [stack.enter_context(Redis(replica_of=master)) for _ in range(2)]
        for replica in replicas:
            replica.wait_for_link()
        sentinel = stack.enter_context(Sentinel(master))
        opened = stack.enter_context(redis.opener())

        def restarts() -> Restarts:
            for replica in replicas:
                replica.restart().wait_for_link()
                yield
            fail_over(sentinel)
            wait_until(lambda: any(each.role == "master" for each in replicas), "the new master")
            wait_until(lambda: master.role == "slave", "the old master", LONG)
            yield
            master.restart()
            yield

        where = [(sentinel.host, sentinel.port)]
        # All of them: Sentinel may promote the one that was not waited for.
        yield opened("redis://main/0", SENTINELS=where, WAIT_REPLICAS=len(replicas)), restarts()


def fail_over(sentinel: Sentinel) -> None:
    """Have another server be the master, as soon as Sentinel knows one well enough."""

    def ordered() -> bool:
        with contextlib.suppress(ServerError):
            return sentinel.execute("SENTINEL", "FAILOVER", "main") == "OK"
        return False

    wait_until(ordered, "Sentinel's failover", LONG)


@contextmanager
def on_redis_cluster() -> Iterator[tuple[BaseLockBackend, Restarts]]:
    with RedisCluster() as cluster, redis.opener() as opened:

        def restarts() -> Restarts:
            for node in cluster.nodes:
                node.restart()
                cluster.wait()
                yield

        urls = [node.url() for node in cluster.nodes]
        yield opened(urls, CLUSTER=True), restarts()


CLUSTERS: dict[str, Callable[[], AbstractContextManager[tuple[BaseLockBackend, Restarts]]]] = {}
if "etcd" in chosen():
    CLUSTERS["etcd"] = on_etcd
if "consul" in chosen() and Consul.installed():
    CLUSTERS["consul"] = on_consul
if "zookeeper" in chosen():
    CLUSTERS["zookeeper"] = on_zookeeper
if "redis" in chosen():
    CLUSTERS["redis-sentinel"] = on_redis_with_sentinel
    CLUSTERS["redis-cluster"] = on_redis_cluster


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", CLUSTERS)
def test_a_rolling_restart_is_told_to_nobody(store: str) -> None:
    with CLUSTERS[store]() as (backend, restarts):
        held = lock("held", using=backend.alias, ttl=TTL, wait=WAIT).acquire()
        assert held is not None
        load = Load(backend)
        try:
            load.goes_on()
            for _ in restarts:
                load.goes_on()
                held.check()
        finally:
            load.end()
        assert load.errors == []
        held.release()
        assert [info.name for info in backend.held()] == []
