"""Other libraries' locks in one Redis, each made, taken and released as its documentation shows."""

from __future__ import annotations

import logging
import os
from abc import abstractmethod
from typing import Any, ClassVar

from ...adapter import Adapter, Backend
from .wire import TTL, urls

__all__ = [
    "DjangoRedis",
    "Pottery",
    "PythonRedisLock",
    "RedisPy",
    "RedlockNg",
    "Sherlock",
    "Tooz",
]

SECONDS = TTL // 1000


class Alternative(Adapter):
    """A library whose locks are objects on redis-py's client."""

    kind = "alternative"
    backend: ClassVar[Backend] = "redis"
    needs: ClassVar[tuple[str, ...]] = ("redis",)

    def open(self) -> None:
        """Connect."""
        from redis import Redis

        self._client: Any = Redis.from_url(urls()[0])

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    @abstractmethod
    def make(self, key: str) -> Any:
        """Return a new lock object, as each use makes one."""

    def acquire(self, key: str) -> Any:
        """Wait for it, as the library does."""
        lock = self.make(key)
        if not lock.acquire():
            raise RuntimeError(f"{self.name} did not wait for {key!r}")
        return lock

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        lock = self.make(key)
        return lock if lock.acquire(blocking=False) else None

    def release(self, handle: Any) -> None:
        """Free it."""
        handle.release()


class RedisPy(Alternative):
    """redis-py's own lock, tried again every 0.1 s."""

    name = "redis-py Lock"

    def make(self, key: str) -> Any:
        """Return a lock of the client."""
        return self._client.lock(key, timeout=SECONDS)


class DjangoRedis(Alternative):
    """The same from ``cache.lock()`` of django-redis."""

    name = "django-redis cache.lock"
    needs = ("redis", "django_redis")

    def open(self) -> None:
        """Connect."""
        from django.core.cache import caches

        self._cache: Any = caches["default"]

    def close(self) -> None:
        """Disconnect."""
        self._cache.close()

    def make(self, key: str) -> Any:
        """Return a lock of the cache."""
        return self._cache.lock(key, timeout=SECONDS)


class PythonRedisLock(Alternative):
    """python-redis-lock: a list wakes one waiter, who tries again."""

    name = "python-redis-lock"
    needs = ("redis", "redis_lock")

    def open(self) -> None:
        """Connect."""
        import redis_lock

        super().open()
        # It warns of each attempt that fails.
        logging.getLogger("redis_lock").setLevel(logging.ERROR)
        self._lock: Any = redis_lock.Lock

    def make(self, key: str) -> Any:
        """Return a lock that expires."""
        return self._lock(self._client, key, expire=SECONDS)


class Pottery(Alternative):
    """pottery's Redlock with one server, tried again after up to 0.2 s."""

    name = "pottery"
    needs = ("redis", "pottery")

    def open(self) -> None:
        """Connect."""
        import pottery

        super().open()
        self._lock: Any = pottery.Redlock
        self._masters = {self._client}

    def make(self, key: str) -> Any:
        """Return a lock on the servers."""
        return self._lock(key=key, masters=self._masters, auto_release_time=SECONDS)


class Sherlock(Alternative):
    """sherlock, tried again every 0.1 s."""

    name = "sherlock"
    needs = ("redis", "sherlock")

    def open(self) -> None:
        """Connect."""
        import sherlock

        super().open()
        self._lock: Any = sherlock.RedisLock

    def make(self, key: str) -> Any:
        """Return a lock with a longer wait than the default of 10 s."""
        return self._lock(key, client=self._client, expire=SECONDS, timeout=600, retry_interval=0.1)


class Tooz(Alternative):
    """tooz of OpenStack: redis-py's lock below a coordinator."""

    name = "tooz"
    needs = ("redis", "tooz")

    def open(self) -> None:
        """Connect the coordinator."""
        from tooz import coordination

        make: Any = coordination.get_coordinator
        self._coordinator = make(urls()[0], f"bench-{os.getpid()}".encode())
        self._coordinator.start()

    def close(self) -> None:
        """Stop the coordinator."""
        self._coordinator.stop()

    def make(self, key: str) -> Any:
        """Return a lock of the coordinator."""
        return self._coordinator.get_lock(key.encode())


class RedlockNg(Alternative):
    """redlock-ng, tried again after 0.1 to 0.3 s."""

    name = "redlock-ng"
    needs = ("redis", "redlock")

    def open(self) -> None:
        """Connect; who attempts only once does not retry."""
        from redlock import Redlock

        made: Any = Redlock
        self._redlock = made(urls(), retry_count=0)

    def close(self) -> None:
        """Disconnect."""
        for client in self._redlock.client.instances:
            client.close()

    def make(self, key: str) -> Any:
        """Return the name: there is no object for a lock that is not held."""
        return key

    def acquire(self, key: str) -> Any:
        """Wait for it."""
        return self._redlock.acquire(key, TTL, blocking=True)

    def try_acquire(self, key: str) -> Any:
        """Attempt once, on a schedule that does not pause after the last attempt."""
        return self._redlock.acquire(key, TTL)

    def release(self, handle: Any) -> None:
        """Free it."""
        self._redlock.release(handle)
