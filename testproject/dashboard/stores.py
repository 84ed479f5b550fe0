"""The stores of the dashboard: SQLite, and servers of its own for those that are installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.servers import Consul, DatabaseServer, Etcd, Redis, ServerError, ZooKeeper
from tests.servers.mariadb import MariaDB
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL

__all__ = ["KNOWN", "environment"]

NODES = 3  # of the alias "redlock"
BACKENDS = "django_distlock.backends"

Say = Callable[[str], None]


def environment(wanted: list[str], folder: Path, stack: ExitStack, say: Say) -> dict[str, str]:
    """Start what is wanted and installed; return the variables that tell the shop of it."""
    databases: dict[str, Any] = {}
    aliases: dict[str, Any] = {}
    for name in wanted:
        if name == "sqlite":
            continue
        driver, start = KNOWN[name]
        if find_spec(driver) is None:
            say(f"{name}: left out, the driver {driver} is not installed")
            continue
        try:
            start(stack, databases, aliases)
        except ServerError as error:
            say(f"{name}: left out. {str(error).splitlines()[0]}")
        else:
            say(f"{name}: runs")
    shop = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(folder / "shop.sqlite3"),
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    }
    return {
        "SHOP_DATABASE": json.dumps(shop),
        "SHOP_DATABASES": json.dumps(databases),
        "SHOP_DISTLOCKS": json.dumps(aliases),
    }


def _database(
    server: DatabaseServer, stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]
) -> None:
    name = stack.enter_context(server).name
    databases[name] = server.create_database("shop")
    aliases[name] = {"BACKEND": f"{BACKENDS}.table.TableBackend", "LOCATION": name}
    aliases[f"{name}-row"] = {
        "BACKEND": f"{BACKENDS}.row.RowBackend",
        "LOCATION": name,
        "PREFIX": "row",
    }
    aliases[f"{name}-advisory"] = {
        "BACKEND": f"{BACKENDS}.advisory.AdvisoryBackend",
        "LOCATION": name,
        "PREFIX": "advisory",
    }


def _postgresql(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    _database(PostgreSQL(), stack, databases, aliases)


def _mariadb(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    _database(MariaDB(), stack, databases, aliases)


def _mysql(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    _database(MySQL(), stack, databases, aliases)


def _etcd(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    url = stack.enter_context(Etcd()).url
    aliases["etcd"] = {"BACKEND": f"{BACKENDS}.etcd.EtcdBackend", "LOCATION": url}


def _consul(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    server = stack.enter_context(Consul())
    aliases["consul"] = {
        "BACKEND": f"{BACKENDS}.consul.ConsulBackend",
        "LOCATION": server.url,
        # As its server allows: who crashes is gone soon, and somebody sees it.
        "OPTIONS": {"SESSION_TTL_MIN": server.least_session, "LOCK_DELAY": 1},
    }


def _zookeeper(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    address = stack.enter_context(ZooKeeper()).address
    aliases["zookeeper"] = {
        "BACKEND": f"{BACKENDS}.zookeeper.ZooKeeperBackend",
        "LOCATION": address,
    }


def _redis(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    url = stack.enter_context(Redis(persistent=False)).url()
    aliases["redis"] = {"BACKEND": f"{BACKENDS}.redis.RedisBackend", "LOCATION": url}


def _redlock(stack: ExitStack, databases: dict[str, Any], aliases: dict[str, Any]) -> None:
    urls = [stack.enter_context(Redis(persistent=False)).url() for _ in range(NODES)]
    aliases["redlock"] = {"BACKEND": f"{BACKENDS}.redlock.RedlockBackend", "LOCATION": urls}


Start = Callable[[ExitStack, dict[str, Any], dict[str, Any]], None]

KNOWN: dict[str, tuple[str, Start]] = {
    "sqlite": ("sqlite3", lambda *_: None),
    "postgresql": ("psycopg", _postgresql),
    "mariadb": ("MySQLdb", _mariadb),
    "mysql": ("MySQLdb", _mysql),
    "redis": ("redis", _redis),
    "redlock": ("redis", _redlock),
    "etcd": ("httptools", _etcd),
    "consul": ("httptools", _consul),
    "zookeeper": ("kazoo", _zookeeper),
}
"""By its name: the driver of a store, and how it is started."""
