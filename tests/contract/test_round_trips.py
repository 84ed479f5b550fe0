"""`lock_all` of many names takes as few round trips as the page says, on each of the stores."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.db import connections

from django_distlock import lock_all, locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.consul import ConsulBackend
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.redis.connection import Connection
from django_distlock.backends.table import TableBackend
from django_distlock.backends.table.wait_queue import TOO_SOON
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.group import LockGroup
from tests.backends.tools import lock_alias
from tests.docs.pages import ROOT, Page
from tests.docs.test_reference import table
from tests.servers import chosen

PAGE = Page(ROOT / "docs" / "reference" / "lock.md")
TITLES = {
    "sqlite": "SQLite",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "etcd": "etcd",
    "consul": "Consul",
    "zookeeper": "ZooKeeper",
}
NAMES = 200


def promised(store: str) -> tuple[int, int]:
    """Return the page's figures for a store: to take so many names, and to release them."""
    for stores, take, release in table(PAGE, "`lock_all`"):
        if TITLES[store] in re.split(r"[ ,]+", stores):
            return int(take), int(release)
    raise AssertionError(f"the page says nothing of {store}")


def asking(backend: BaseLockBackend) -> tuple[Any, str]:
    """Return what carries out a round trip of this process's threads, and its name."""
    if isinstance(backend, EtcdBackend):
        return backend._client.http, "ask"
    if isinstance(backend, ConsulBackend):
        return backend._http, "ask"
    if isinstance(backend, ZooKeeperBackend):
        return backend._session, "ask"
    return Connection, "_ask"


@contextmanager
def counted(backend: BaseLockBackend) -> Iterator[list[int]]:
    """Count the round trips of this thread."""
    count = [0]

    def note(real: Callable[..., Any], *args: Any) -> Any:
        count[0] += 1
        return real(*args)

    if isinstance(backend, TableBackend):
        with connections[backend.database].execute_wrapper(note):
            yield count
        return
    where, name = asking(backend)
    real = getattr(where, name)
    with mock.patch.object(where, name, lambda *args: note(real, *args)):
        yield count


@pytest.mark.parametrize("store", sorted(chosen() & TITLES.keys()))
def test_many_names_take_few_round_trips(store: str, name: str) -> None:
    usual = settings.DISTLOCKS[store]
    patient = usual | {"OPTIONS": usual.get("OPTIONS", {}) | {"COMMAND_TIMEOUT": 30}}
    names = [f"{name} {number}" for number in range(NAMES)]
    with lock_alias("patient", **patient):
        group = lock_all(*names, using="patient", ttl=60, wait=60)
        # At the first time a process makes what it needs: nodes, sessions and leases. On a busy
        # machine it may renew its session meanwhile, or ask again.
        assert min(trips(group) for _ in range(3)) == promised(store)


def trips(group: LockGroup) -> tuple[int, int]:
    """Take and release the locks of a group; return the round trips of each."""
    backend = locks["patient"]
    time.sleep(2 * TOO_SOON)  # else it asks first whether others wait, as it was the last holder
    with counted(backend) as taken:
        leases = group.acquire()
    assert leases is not None
    assert len(leases) == NAMES
    with counted(backend) as released:
        leases.release()
    return taken[0], released[0]
