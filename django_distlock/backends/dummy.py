"""A backend that grants everything: for tests of code whose locking does not matter."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import ClassVar

from ..core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from .base import BaseLockBackend

__all__ = ["DummyBackend"]


class DummyBackend(BaseLockBackend):
    """Grants every claim and excludes nothing; its tokens rise within the process.

    `manage.py check --deploy` warns of it.
    """

    scope = "process"
    exclusive = False
    cleans = supports_shared = supports_limit = True
    never_blocks = True
    _tokens: ClassVar[Iterator[int]] = itertools.count(time.time_ns() // 1000)

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return Grant(next(self._tokens), claim.ttl, slot=0 if claim.limit else None)

    def renew(self, claim: Claim) -> bool:
        return True

    def release(self, claim: Claim) -> bool:
        return True

    def inspect(self, name: str) -> LockInfo | None:
        return None

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return iter(())

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        return Cleaned()
