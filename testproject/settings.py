"""Settings of the example shop.

Nothing has to be set. These environment variables change the defaults:

``SHOP_DATABASE``   a ``DATABASES`` entry as JSON, used in place of the SQLite file
``SHOP_DATABASES``  more ``DATABASES`` entries as JSON
``SHOP_DISTLOCKS``  more ``DISTLOCKS`` aliases as JSON, added to ``default``
``SHOP_REDIS``      the URL of a Redis, for the aliases "redis", "redis-transactions" and "getset"
``SHOP_REDLOCK``    the URLs of three or five of them, with spaces between, for the alias "redlock"
``SHOP_ETCD``       the URLs of an etcd's members, with spaces between, for the alias "etcd"
``SHOP_CONSUL``     the URLs of Consul agents, with spaces between, for the alias "consul"
``SHOP_ZOOKEEPER``  the servers of a ZooKeeper, as "host:2181,host:2181", for the alias "zookeeper"
``SHOP_BROKER``     the URL of a broker for Celery; without it tasks run where they are sent
``SHOP_DEBUG``      ``0`` turns debug pages off
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only-for-the-example-shop-on-your-own-machine")
DEBUG = os.environ.get("SHOP_DEBUG", "1") != "0"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_distlock",
    "testproject.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
WSGI_APPLICATION = "testproject.wsgi.application"
ASGI_APPLICATION = "testproject.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

SQLITE: dict[str, Any] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": BASE_DIR / "testproject" / "shop.sqlite3",
    "OPTIONS": {
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
    },
}

DATABASES: dict[str, Any] = {
    "default": json.loads(os.environ["SHOP_DATABASE"]) if "SHOP_DATABASE" in os.environ else SQLITE,
    **json.loads(os.environ.get("SHOP_DATABASES", "{}")),
}

ROW_LOCKS: dict[str, Any] = {
    "row": {
        "BACKEND": "django_distlock.backends.row.RowBackend",
        "LOCATION": "default",
        "PREFIX": "shop-row",
    },
    "advisory": {
        "BACKEND": "django_distlock.backends.advisory.AdvisoryBackend",
        "LOCATION": "default",
        "PREFIX": "shop-advisory",
    },
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    ROW_LOCKS = {}  # it has neither

REDIS_LOCKS: dict[str, Any] = {}
if "SHOP_REDIS" in os.environ:
    REDIS_LOCKS = {
        name: {
            "BACKEND": "django_distlock.backends.redis.RedisBackend",
            "LOCATION": os.environ["SHOP_REDIS"],
            "PREFIX": f"shop-{name}",
            "OPTIONS": options,
        }
        for name, options in {"redis": {}, "redis-transactions": {"SCRIPTING": False}}.items()
    }
    # Run by `manage.py demo --technique getset` only, and marked unsafe there.
    REDIS_LOCKS["getset"] = {
        "BACKEND": "testproject.unsafe.getset.GetSetBackend",
        "LOCATION": os.environ["SHOP_REDIS"],
    }
if "SHOP_REDLOCK" in os.environ:
    REDIS_LOCKS["redlock"] = {
        "BACKEND": "django_distlock.backends.redlock.RedlockBackend",
        "LOCATION": os.environ["SHOP_REDLOCK"].split(),
    }

CONSUL_LOCKS: dict[str, Any] = {}
if "SHOP_CONSUL" in os.environ:
    CONSUL_LOCKS["consul"] = {
        "BACKEND": "django_distlock.backends.consul.ConsulBackend",
        "LOCATION": os.environ["SHOP_CONSUL"].split(),
    }

ZOOKEEPER_LOCKS: dict[str, Any] = {}
if "SHOP_ZOOKEEPER" in os.environ:
    ZOOKEEPER_LOCKS["zookeeper"] = {
        "BACKEND": "django_distlock.backends.zookeeper.ZooKeeperBackend",
        "LOCATION": os.environ["SHOP_ZOOKEEPER"],
    }

DISTLOCKS: dict[str, Any] = {
    "default": {
        "BACKEND": "django_distlock.backends.table.TableBackend",
        "LOCATION": "default",
        "PREFIX": "shop",
    },
    # The other techniques of SQL, as far as the database can do them; their names are apart.
    "version": {
        "BACKEND": "django_distlock.backends.version.VersionBackend",
        "LOCATION": "default",
        "PREFIX": "shop-version",
    },
    **ROW_LOCKS,
    **REDIS_LOCKS,
    **CONSUL_LOCKS,
    **ZOOKEEPER_LOCKS,
    # More aliases go here; `manage.py demo` runs each one that works over several processes.
    **json.loads(os.environ.get("SHOP_DISTLOCKS", "{}")),
}

if "SHOP_ETCD" in os.environ:
    DISTLOCKS["etcd"] = {
        "BACKEND": "django_distlock.backends.etcd.EtcdBackend",
        "LOCATION": os.environ["SHOP_ETCD"].split(),
        "PREFIX": "shop-etcd",
    }

CELERY_BROKER_URL = os.environ.get("SHOP_BROKER", "memory://")
CELERY_RESULT_BACKEND = os.environ.get("SHOP_BROKER")
CELERY_TASK_ALWAYS_EAGER = "SHOP_BROKER" not in os.environ
CELERY_TASK_EAGER_PROPAGATES = True

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
