"""Redis: one server, or five that know nothing of each other."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from tests.servers.redis import Redis

from .base import Store, alias

__all__ = ["OneRedis", "Redlock"]

CACHE = "django_redis.cache.RedisCache"


class Nodes(Store):
    """Servers that keep nothing on a disk."""

    count: ClassVar[int]
    kind: ClassVar[str]
    has_tables = False

    def __init__(self) -> None:
        self.servers = [Redis(persistent=False) for _ in range(self.count)]

    def start(self) -> None:
        for server in self.servers:
            server.start()

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def settings(self) -> dict[str, Any]:
        """Return the alias, and a cache of django-redis and a database as most projects have."""
        urls = [server.url() for server in self.servers]
        where: str | list[str] = urls[0] if self.count == 1 else urls
        return {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            "CACHES": {"default": {"BACKEND": CACHE, "LOCATION": urls[0]}},
            "DISTLOCKS": {"default": alias(self.kind, where), **self.others(where)},
        }

    def others(self, where: str | list[str]) -> dict[str, Any]:
        """Return more aliases."""
        return {}

    def pids(self) -> list[int]:
        return [pid for server in self.servers for pid in server.pids]

    def settle(self, left: int = 0) -> None:
        """Wait until the clients are gone: the end of a connection is read like a message.

        With clients ``left``, only changes are counted, at once.
        """
        end = time.monotonic() + 10
        while not left and self._sum("connected_clients") > self.count:  # who asks is one, too
            if time.monotonic() > end:
                raise RuntimeError("Clients are left over in Redis")
            time.sleep(0.02)

    def work(self) -> int:
        """Return how many messages the servers have read.

        Redis counts commands, too, but with those inside of scripts, which cost no round trip.
        """
        return self._sum("total_reads_processed")

    def writes(self) -> dict[str, int]:
        """Return the changes of data: nothing goes to a disk."""
        return {"changes": self._sum("rdb_changes_since_last_save")}

    def memory(self) -> int:
        return self._sum("used_memory")

    def _sum(self, field: str) -> int:
        return sum(int(server.info(field)) for server in self.servers)


class OneRedis(Nodes):
    """One server without persistence."""

    name = "redis"
    backend = "redis"
    kind = "redis.Redis"
    count = 1

    def others(self, where: str | list[str]) -> dict[str, Any]:
        scriptless = alias(self.kind, where)
        return {
            "scriptless": {**scriptless, "PREFIX": "scriptless", "OPTIONS": {"SCRIPTING": False}}
        }


class Redlock(Nodes):
    """Five servers without persistence."""

    name = "redlock"
    backend = "redlock"
    kind = "redlock.Redlock"
    count = 5
