"""Other libraries' semaphores in one Redis: tokens in a list, which `BLPOP` waits for.

Neither has leases, as they are made here: the token of a holder that crashes is lost.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .alternatives import SECONDS, Alternative

__all__ = ["RedisRateLimiters", "RedisSemaphore"]


class _Semaphore(Alternative):
    """An object for each name, which a program keeps."""

    waits = exclusive = False
    at_once = 4

    def open(self) -> None:
        """Connect; there are no objects yet."""
        super().open()
        self._kept: dict[str, Any] = {}

    def make(self, key: str) -> Any:
        """Return the semaphore of a name, made at its first use."""
        if key not in self._kept:
            self._kept[key] = self.first(key, self.at_once or 1)
        return self._kept[key]

    @abstractmethod
    def first(self, key: str, limit: int) -> Any:
        """Make the semaphore of a name."""


class RedisRateLimiters(_Semaphore):
    """The semaphore of redis-rate-limiters, which expires when it is not used."""

    name = "redis-rate-limiters, semaphore of 4"
    needs = ("redis", "limiters")

    def first(self, key: str, limit: int) -> Any:
        """Make one that waits for as long as it takes."""
        from limiters import SyncSemaphore

        kept: Any = {"connection": self._client, "expiry": SECONDS}
        return SyncSemaphore(name=key, capacity=limit, max_sleep=0, **kept)

    def acquire(self, key: str) -> Any:
        """Enter the block."""
        made = self.make(key)
        made.__enter__()
        return made

    def release(self, handle: Any) -> None:
        """Leave the block."""
        handle.__exit__(None, None, None)


class RedisSemaphore(_Semaphore):
    """The semaphore of redis-semaphore."""

    name = "redis-semaphore, 4"
    needs = ("redis", "redis_semaphore")

    def first(self, key: str, limit: int) -> Any:
        """Make one."""
        from redis_semaphore import Semaphore

        return Semaphore(self._client, count=limit, namespace=key)
