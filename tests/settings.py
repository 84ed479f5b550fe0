"""Django's settings for the tests: every chosen store is an alias, in one process.

`tests/conftest.py` starts the servers and says where they are in DISTLOCK_TEST_DATABASES, so that
the processes which the tests start find the same ones; the Redis is in DISTLOCK_TEST_REDIS.
"""

from __future__ import annotations

import json
import os
from typing import Any

import tests.patience  # noqa: F401 - first, see there
from tests import (
    clusters,
    consul_servers,
    etcd_servers,
    mysql_servers,
    redlock,
    zookeeper_servers,
)

DATABASES: dict[str, dict[str, Any]] = json.loads(os.environ["DISTLOCK_TEST_DATABASES"])

ISOLATED: dict[str, dict[str, dict[str, Any]]] = {
    "postgresql": {
        # What the driver sets (its numbers are psycopg.IsolationLevel's) counts in transactions
        # only; what the session sets counts for the lone statements of the lock table, too.
        "repeatable read": {
            "isolation_level": 3,
            "options": r"-c default_transaction_isolation=repeatable\ read",
        },
        "serializable": {
            "isolation_level": 4,
            "options": "-c default_transaction_isolation=serializable",
            # Another choice of a user's, by which the server is told of what type a parameter is.
            "server_side_binding": True,
        },
    },
    "mariadb": {
        # Snapshots are watched by default from MariaDB 11.6 on, and can be in the ones before.
        "repeatable read": {
            "isolation_level": "repeatable read",
            "init_command": "SET innodb_snapshot_isolation = ON",
        },
        "serializable": {"isolation_level": "serializable"},
    },
}
"""The OPTIONS by which a user asks for an isolation level; each is an alias of its own."""

for _store, _levels in ISOLATED.items():
    for _level, _options in _levels.items():
        if _store in DATABASES:
            _usual = DATABASES[_store]
            _all_options = _usual.get("OPTIONS", {}) | _options
            DATABASES[f"{_store} {_level}"] = _usual | {"OPTIONS": _all_options}

TABLE = "django_distlock.backends.table.TableBackend"
ADVISORY = "django_distlock.backends.advisory.AdvisoryBackend"
ROW = "django_distlock.backends.row.RowBackend"
VERSION = "django_distlock.backends.version.VersionBackend"

DISTLOCKS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    "locmem": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    "dummy": {"BACKEND": "django_distlock.backends.dummy.DummyBackend"},
    **{name: {"BACKEND": TABLE, "LOCATION": name} for name in DATABASES if name != "default"},
    # The same tables by the ORM alone, as on databases without SQL text of their own.
    **{
        f"portable-{name}": {
            "BACKEND": TABLE,
            "LOCATION": name,
            "PREFIX": "portable",
            "OPTIONS": {"SQL": "portable"},
        }
        for name in DATABASES
        if name not in ("default", "memory")
    },
    **{
        f"row-{name}": {"BACKEND": ROW, "LOCATION": name, "OPTIONS": {"CONNECTIONS": 150}}
        for name in DATABASES
        if DATABASES[name]["ENGINE"] != "django.db.backends.sqlite3"
    },
    **{
        f"advisory-{name}": {"BACKEND": ADVISORY, "LOCATION": name, "OPTIONS": {"CONNECTIONS": 150}}
        for name in DATABASES
        if " " not in name and DATABASES[name]["ENGINE"] != "django.db.backends.sqlite3"
    },
    **{
        f"version-{name}": {"BACKEND": VERSION, "LOCATION": name, "PREFIX": "version"}
        for name in DATABASES
        if name not in ("default", "memory")
    },
}

# Not before: it has no such aliases for each isolation level, and is run by one process alone.
DATABASES |= mysql_servers.databases()
DISTLOCKS |= mysql_servers.aliases()
DISTLOCKS |= redlock.aliases()
DISTLOCKS |= etcd_servers.aliases()
DISTLOCKS |= consul_servers.aliases()
DISTLOCKS |= zookeeper_servers.aliases()

REDIS = os.environ.get("DISTLOCK_TEST_REDIS", "")
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
if REDIS:
    _server = REDIS.rpartition("/")[0]
    CACHES["django-redis"] = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"{_server}/1",
        "KEY_PREFIX": "shop",
        "VERSION": 3,
    }
    CACHES["django"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": f"{_server}/2",
    }
    _redis = {"BACKEND": "django_distlock.backends.redis.RedisBackend"}
    DISTLOCKS |= {
        "redis": _redis | {"LOCATION": REDIS},
        "scriptless-redis": _redis
        | {"LOCATION": REDIS, "PREFIX": "scriptless", "OPTIONS": {"SCRIPTING": False}},
        "cached-redis": _redis | {"LOCATION": "django-redis"},
    }

DISTLOCKS = {alias: conf for alias, conf in DISTLOCKS.items() if not clusters.is_hidden(alias)}

INSTALLED_APPS = ["django_distlock", "tests.versions", "tests.commands"]
SECRET_KEY = "only for tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGGING = {"version": 1, "disable_existing_loggers": False}
# There are no users here: django.contrib.auth is not installed.
REST_FRAMEWORK: dict[str, object] = {
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_AUTHENTICATION_CLASSES": [],
}
# Aliases of other isolation levels, and twins, are the same locks on purpose.
SILENCED_SYSTEM_CHECKS = ["distlock.W008"]
