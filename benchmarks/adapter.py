"""What is measured: one small class for each way to take a lock."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Self

__all__ = ["RETRY", "Adapter", "Backend", "Kind", "Polled", "PolledAsOurs"]

Backend = Literal[
    "table", "row", "advisory", "version", "redis", "redlock", "etcd", "consul", "zookeeper"
]
Kind = Literal["ours", "baseline", "alternative"]

RETRY = 0.05  # seconds between two attempts, where a library leaves the waiting to its user


class Adapter(ABC):
    """One way to take a lock in one store.

    An instance is made before the processes that use it are forked, and opened in each of them.
    """

    name: str
    kind: ClassVar[Kind]
    backend: ClassVar[Backend] = "table"
    """The backend of ours that it stands beside."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules that have to be installed."""
    apps: ClassVar[tuple[str, ...]] = ()
    """What Django's INSTALLED_APPS needs for it."""
    waits: ClassVar[bool] = True
    """Whether `acquire` waits for an exclusive lock; without, only cycles are measured."""
    exclusive: ClassVar[bool] = True
    """Whether one alone holds it."""
    sessions: ClassVar[int] = 1
    """How many sessions with a database a process keeps that holds a lock."""
    at_once: int | None = None
    """How many hold it at once, where that is to be compared; four stand for any limit."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.failures = 0  # attempts that ended in an error which is not "busy"

    def missing(self) -> list[str]:
        """Return the modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def with_limit(self, limit: int) -> Self:
        """Return the same for another limit than four."""
        other = copy.copy(self)
        other.name, other.at_once = self.name.replace("4", str(limit)), limit
        return other

    @abstractmethod
    def open(self) -> None:
        """Connect this process."""

    @abstractmethod
    def close(self) -> None:
        """Close what `open` opened."""

    @abstractmethod
    def acquire(self, key: str) -> Any:
        """Take the lock, waiting for it, and return what `release` needs."""

    @abstractmethod
    def release(self, handle: Any) -> None:
        """Free the lock."""

    def try_acquire(self, key: str) -> Any:
        """Attempt once; return what `release` needs, or None when another holds it."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Do what only the first use in a process or a thread does, on a lock of its own."""
        for _ in range(3):
            self.release(self.acquire(f"warm-up:{self.name}:{threading.get_native_id()}"))


class Polled(Adapter):
    """A way that can only attempt: its user tries again after a while."""

    def acquire(self, key: str) -> Any:
        """Attempt again and again, as the users of such a library do."""
        pauses = self.pauses()
        while (handle := self.try_acquire(key)) is None:
            time.sleep(next(pauses))
        return handle

    def pauses(self) -> Iterator[float]:
        """Return the seconds between the attempts."""
        return itertools.repeat(RETRY)


class PolledAsOurs(Polled):
    """The same, with the pauses of a backend of ours that does not wake its waiters."""

    waits = True

    def pauses(self) -> Iterator[float]:
        """Return the pauses: from 5 ms, doubling up to 100 ms, each jittered."""
        from django_distlock.backends.base import BaseLockBackend
        from django_distlock.core.backoff import delays

        return delays(*BaseLockBackend.poll)
