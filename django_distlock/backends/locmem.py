"""Locks in this process's memory: for tests, development and single-process programs."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from ..conf import AliasConf
from ..core.names import key_of
from ..core.threads import Mutex
from ..core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal, noted
from .base import BaseLockBackend

__all__ = ["LocMemBackend"]


@dataclass(slots=True)
class _Row:
    name: str
    owner: str
    token: int
    acquired: float  # by the wall clock, as is all that is only for people
    expires: float  # on this backend's clock
    note: str


class _Space:
    """The locks of one LOCATION. Released rows go; the highest token of all stays."""

    def __init__(self) -> None:
        self.mutex = Mutex()
        self.rows: dict[str, _Row] = {}
        self.top = 0


class LocMemBackend(BaseLockBackend):
    """Exclusion between the threads and tasks of one process, by the same contract.

    Aliases with the same LOCATION (a str, by default the alias) share their locks. A forked child
    starts with none.
    """

    scope = "process"
    cleans = True
    never_blocks = True
    grace: ClassVar[float] = 0.2
    _spaces: ClassVar[dict[str, _Space]] = {}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        self._location = str(conf.location or alias)
        self._space = self._spaces.setdefault(self._location, _Space())

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        space = self._space
        with space.mutex:
            now = self.clock()
            row = space.rows.get(claim.key)
            if row is not None and row.owner != claim.owner and row.expires > now:
                return Refusal(row.expires - now, row.note)
            if row is None or row.owner != claim.owner:
                acquired = time.time()
                space.top = max(space.top + 1, int(acquired * 1e6))
                row = _Row(claim.name, claim.owner, space.top, acquired, 0.0, claim.note)
                space.rows[claim.key] = row
            row.expires = now + claim.ttl
            return Grant(row.token, claim.ttl)

    def renew(self, claim: Claim) -> bool:
        with self._space.mutex:
            row = self._owned(claim)
            if row is not None:
                row.expires = self.clock() + claim.ttl
            return row is not None

    def release(self, claim: Claim) -> bool:
        space = self._space
        with space.mutex:
            if self._owned(claim) is None:
                return False
            del space.rows[claim.key]
            return True

    def _owned(self, claim: Claim) -> _Row | None:
        row = self._space.rows.get(claim.key)
        if row is None or row.owner != claim.owner or row.expires <= self.clock():
            return None
        return row

    def inspect(self, name: str) -> LockInfo | None:
        with self._space.mutex:
            row = self._space.rows.get(self.key(name))
            return None if row is None else self._info(row)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        with self._space.mutex:
            mine = [
                self._info(row)
                for key, row in self._space.rows.items()
                if row.name.startswith(prefix) and key == key_of(self.conf.prefix, row.name)
            ]
        return (info for info in mine if info is not None)

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        with self._space.mutex:
            mine = [
                self._info(row, expired=True)
                for key, row in self._space.rows.items()
                if row.name.startswith(prefix) and key == key_of(self.conf.prefix, row.name)
            ]
        return (info for info in mine if info is not None)

    def _info(self, row: _Row, *, expired: bool = False) -> LockInfo | None:
        now, wall = self.clock(), time.time()
        if (row.expires <= now) is not expired:
            return None
        return noted(
            row.note,
            name=row.name,
            fencing_token=row.token,
            acquired_at=datetime.fromtimestamp(row.acquired, UTC),
            expires_at=datetime.fromtimestamp(wall + (row.expires - now), UTC),
            owner=row.owner,
        )

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Remove leases that ran out and were never released; a release leaves nothing."""
        with self._space.mutex:
            rows = self._space.rows
            cut = self.clock() - policy.older_than
            idle = [key for key, row in rows.items() if row.expires <= cut]
            done = Cleaned(removed=len(idle), seen=len(rows))
            for key in () if policy.dry_run else idle:
                del rows[key]
        return done

    def cleaned_with(self) -> Hashable:
        return ("locmem", self._location)

    def forget_parent(self) -> None:
        super().forget_parent()
        self._space.mutex = Mutex()
        self._space.rows.clear()
