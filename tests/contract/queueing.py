"""Small backends with the flags that those of this package do not have, to try the suite on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.utils import timezone

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.conf import parse
from django_distlock.core.values import Claim, Grant, LockInfo, Refusal
from django_distlock.exceptions import InvalidLockBackendError
from django_distlock.handler import locks

__all__ = ["HidingBackend", "QueueingBackend", "TokenlessBackend", "opened"]


class QueueingBackend(LocMemBackend):
    """Locks in memory, first come first served; who is first in the queue is woken."""

    longest_ttl = 3600.0
    queues = fair = notifies = counts_waiters = native_async = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._order = threading.RLock()
        self._queues: dict[str, dict[str, threading.Event]] = {}

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        with self._order:
            queue = self._queues.setdefault(claim.key, {})
            first = next(iter(queue), claim.owner) == claim.owner
            if first or self._holds(claim):
                answer = super().try_acquire(claim, limit)
                if isinstance(answer, Grant):
                    queue.pop(claim.owner, None)
                    return answer
            queue.setdefault(claim.owner, threading.Event())
            return Refusal(self._left(claim), queue=True)

    def _left(self, claim: Claim) -> float | None:
        info = super().inspect(claim.name)
        if info is None or info.expires_at is None:
            return None
        return (info.expires_at - timezone.now()).total_seconds()

    def _holds(self, claim: Claim) -> bool:
        info = super().inspect(claim.name)
        return info is not None and info.owner == claim.owner

    def release(self, claim: Claim) -> bool:
        with self._order:
            queue = self._queues.get(claim.key, {})
            queue.pop(claim.owner, None)
            released = super().release(claim)
            if queue:
                next(iter(queue.values())).set()
            return released

    def _event(self, claim: Claim) -> threading.Event:
        with self._order:
            return self._queues.get(claim.key, {}).get(claim.owner) or threading.Event()

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        event = self._event(claim)
        event.wait(limit)
        event.clear()
        return True

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        event, end = self._event(claim), time.monotonic() + limit
        while not event.is_set() and time.monotonic() < end:
            await asyncio.sleep(0.002)
        event.clear()
        return True

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return self.try_acquire(claim, limit)

    async def arenew(self, claim: Claim) -> bool:
        return self.renew(claim)

    async def arelease(self, claim: Claim) -> bool:
        return self.release(claim)

    def inspect(self, name: str) -> LockInfo | None:
        info = super().inspect(name)
        return info and self._counted(info)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return map(self._counted, super().scan(prefix))

    def _counted(self, info: LockInfo) -> LockInfo:
        with self._order:
            return replace(info, waiters=len(self._queues.get(self.key(info.name), ())))


class TokenlessBackend(LocMemBackend):
    """Locks in memory without fencing tokens; nothing can be cleaned."""

    supports_fencing = cleans = False
    clean_batch = BaseLockBackend.clean_batch

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        answer = super().try_acquire(claim, limit)
        return answer._replace(fencing_token=0) if isinstance(answer, Grant) else answer

    def inspect(self, name: str) -> LockInfo | None:
        info = super().inspect(name)
        return info and replace(info, fencing_token=None)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return (replace(info, fencing_token=None) for info in super().scan(prefix))


class HidingBackend(TokenlessBackend):
    """Locks in memory of which is known that they are held, and no more."""

    shows_holders = force_releases = False

    def inspect(self, name: str) -> LockInfo | None:
        return super().inspect(name) and LockInfo(name)

    scan = BaseLockBackend.scan


def opened(alias: str, kind: type[BaseLockBackend]) -> BaseLockBackend:
    """Return the backend of an alias that is not in the settings; open it if it is not."""
    try:
        return locks[alias]
    except InvalidLockBackendError:
        path = f"{kind.__module__}.{kind.__qualname__}"
        locks[alias] = kind(alias, parse(alias, {"BACKEND": path}))
        return locks[alias]
