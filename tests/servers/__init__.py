"""Private servers for the tests; ``chosen()`` says which ones this run uses."""

from __future__ import annotations

import os

from .base import DatabaseServer, Server, ServerError
from .consul import Consul, ConsulCluster
from .etcd import Etcd, EtcdCluster, NewerEtcd
from .mariadb import MariaDB
from .mysql import MySQL
from .postgresql import PostgreSQL
from .redis import Redis, RedisCluster, Sentinel
from .zookeeper import ZooKeeper, ZooKeeperCluster

__all__ = [
    "DATABASES",
    "STORES",
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

DATABASES: dict[str, type[DatabaseServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}
"""The database servers by the name of their store."""

STORES = ("sqlite", *DATABASES, "mysql", "redis", "etcd", "consul", "zookeeper")
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
