"""UNSAFE: the old recipe that locks by SETNX and GETSET on the time at which the lock ends.

docs/explanation/setnx-getset.md says what is wrong with it; tests/redis/test_getset.py shows it.
`manage.py demo --technique getset` runs it beside the safe techniques.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar

from django_distlock.backends.base import BaseLockBackend
from django_distlock.conf import AliasConf
from django_distlock.core.values import Claim, Grant, Holder, LockInfo, Refusal

__all__ = ["GetSetBackend"]


class GetSetBackend(BaseLockBackend):
    """Locks by SETNX and GETSET, as many a program did. It breaks: see this module's docstring."""

    unsafe: ClassVar[bool] = True
    supports_fencing = False

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        from redis.exceptions import RedisError

        self.store_errors = (RedisError,)
        self._ends: dict[str, str] = {}  # by owner, what we believe to have written

    @cached_property
    def client(self) -> Any:
        """Redis, by its ordinary client."""
        from redis import Redis

        return Redis.from_url(str(self.conf.location), socket_timeout=self.command_timeout)

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Take the lock if it is free, or if its time is over and nobody was faster."""
        mine = f"{time.time() + claim.ttl:.6f}"
        key = f"getset:{claim.key}"
        if self.client.setnx(key, mine):
            return self._granted(claim, mine)
        ends = self.client.get(key)
        if ends is not None and float(ends) > time.time():
            return Refusal(float(ends) - time.time())
        if self.client.getset(key, mine) == ends:
            return self._granted(claim, mine)
        return Refusal()

    def _granted(self, claim: Claim, mine: str) -> Grant:
        self._ends[claim.owner] = mine
        return Grant(0, claim.ttl)

    def renew(self, claim: Claim) -> bool:
        """Write a new time, whosoever the lock may be by now."""
        if claim.owner not in self._ends:
            return False
        self._ends[claim.owner] = f"{time.time() + claim.ttl:.6f}"
        self.client.set(f"getset:{claim.key}", self._ends[claim.owner])
        return True

    def release(self, claim: Claim) -> bool:
        """Delete the lock if it has not ended by our clock, whosoever it may be by now."""
        ends = self._ends.pop(claim.owner, None)
        if ends is None:
            return False
        now = self.client.get(f"getset:{claim.key}")
        if now is not None and float(now) > time.time():
            self.client.delete(f"getset:{claim.key}")
        return True

    def inspect(self, name: str) -> LockInfo | None:
        """Tell until when somebody holds it; who does, nobody knows."""
        ends = self.client.get(f"getset:{self.key(name)}")
        if ends is None or float(ends) <= time.time():
            return None
        until = datetime.fromtimestamp(float(ends), UTC)
        return LockInfo(name, Holder(), None, acquired_at=until, expires_at=until)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        """Show nothing: the keys do not say which names they are of."""
        return iter(())

    def close(self) -> None:
        super().close()
        self.client.close()
