"""Private servers for the tests; ``chosen()`` says which ones this run uses."""

from __future__ import annotations

import os
from typing import TypeVar

from .base import DatabaseServer, Server, ServerError
from .consul import Consul, ConsulCluster
from .etcd import Etcd, EtcdCluster, NewerEtcd
from .mariadb import MariaDB
from .mysql import MySQL
from .postgresql import PostgreSQL
from .redis import Redis, RedisCluster, Sentinel
from .zookeeper import ZooKeeper, ZooKeeperCluster

T = TypeVar("T")

__all__ = [
    "DATABASES",
    "STORES",
    "ByStore",
    "Consul",
    "ConsulCluster",
    "DatabaseServer",
    "Etcd",
    "EtcdCluster",
    "NewerEtcd",
    "Redis",
    "RedisCluster",
    "Sentinel",
    "Server",
    "ServerError",
    "ZooKeeper",
    "ZooKeeperCluster",
    "chosen",
    "databases",
    "missing",
]

DATABASES: dict[str, type[DatabaseServer]] = {
    "postgresql": PostgreSQL,
    "mariadb": MariaDB,
    "mysql": MySQL,
}
"""The database servers by the name of their store."""


class ByStore(dict[str, T]):
    """What differs by the database server; of MySQL it is as of MariaDB unless it is said."""

    def __missing__(self, store: str) -> T:
        if store != "mysql":
            raise KeyError(store)
        return self["mariadb"]


STORES = ("sqlite", *DATABASES, "redis", "etcd", "consul", "zookeeper")
"""Every store that ``DISTLOCK_TEST_STORES`` may name; SQLite needs no server."""


def chosen() -> tuple[str, ...]:
    """Return the stores that ``DISTLOCK_TEST_STORES`` names (words); all of them without it."""
    words = os.environ.get("DISTLOCK_TEST_STORES", " ".join(STORES)).split()
    if unknown := sorted(set(words) - set(STORES)):
        raise ValueError(f"DISTLOCK_TEST_STORES names {unknown}; known are {list(STORES)}")
    absent = missing()
    return tuple(store for store in STORES if store in words and store not in absent)


def missing() -> dict[str, str]:
    """Return the stores that cannot be tested here though they were asked for, and why."""
    words = os.environ.get("DISTLOCK_TEST_STORES", " ".join(STORES)).split()
    absent = {
        "consul": Consul.installed(),
        "mysql": MySQL.installed(),
    }
    return {
        store: f"there is no {store} here, and Debian 12 has no package: see scripts/setup"
        for store, installed in absent.items()
        if store in words and not installed
    }


def databases() -> tuple[str, ...]:
    """Return the chosen stores that Django can use as a database."""
    return tuple(store for store in chosen() if store == "sqlite" or store in DATABASES)
