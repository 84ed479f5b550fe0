"""Locks in this process's memory: for tests, development and single-process programs."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from ..conf import AliasConf
from ..core.members import Member, Members
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


@dataclass(slots=True)
class _Several:
    """The holders of a name that several may hold, in microseconds of the backend's clock."""

    name: str
    members: Members


class _Space:
    """The locks of one LOCATION. Released rows go; the highest token of all stays."""

    def __init__(self) -> None:
        self.mutex = Mutex()
        self.rows: dict[str, _Row] = {}
        self.several: dict[str, _Several] = {}
        self.top = 0


class LocMemBackend(BaseLockBackend):
    """Exclusion between the threads and tasks of one process, by the same contract.

    Aliases with the same LOCATION (a str, by default the alias) share their locks. A forked child
    starts with none.
    """

    scope = "process"
    cleans = supports_shared = supports_limit = True
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
            if not claim.is_exclusive or claim.key in space.several:
                answer = self._join(claim, row, now)
                if answer is not None:
                    return answer
            if row is not None and row.owner != claim.owner and row.expires > now:
                return Refusal(row.expires - now, row.note)
            if row is None or row.owner != claim.owner:
                token, acquired = self._token(), time.time()
                row = _Row(claim.name, claim.owner, token, acquired, 0.0, claim.note)
                space.rows[claim.key] = row
            row.expires = now + claim.ttl
            return Grant(row.token, claim.ttl)

    def _token(self) -> int:
        """Return the next fencing token."""
        space = self._space
        space.top = max(space.top + 1, int(time.time() * 1e6))
        return space.top

    def _join(self, claim: Claim, row: _Row | None, now: float) -> Grant | Refusal | None:
        """Attempt once where several hold the lock, or may; None where the claim may be alone."""
        if row is not None and row.expires > now and not claim.is_exclusive:
            return Refusal(row.expires - now, row.note, other_limit=0 if claim.limit else None)
        several, moment = self._several(claim, now), _micros(now)
        members = several.members
        if claim.is_exclusive:
            refusal = members.refusal(claim, moment)
            if refusal is None:
                del self._space.several[claim.key]
            else:
                several.members = members.awaited(claim, moment) or members
            return refusal
        joined = members.joined(claim, moment, self._token())
        if isinstance(joined, Refusal):
            return joined
        several.members = joined
        self._space.rows.pop(claim.key, None)  # one that ran out
        return joined.grant(claim)

    def _several(self, claim: Claim, now: float) -> _Several:
        """Return the living holders of a claim's name."""
        several = self._space.several.setdefault(claim.key, _Several(claim.name, Members()))
        several.members = several.members.living(_micros(now))
        return several

    def renew(self, claim: Claim) -> bool:
        space, now = self._space, self.clock()
        with space.mutex:
            row = self._owned(claim)
            if row is not None and not claim.shared:
                row.expires = now + claim.ttl
                return True
            several = space.several.get(claim.key)
            if row is not None:  # from now on others may share it
                held = Members.of_one(claim, row.token, _micros(now), _micros(row.expires))
                several = space.several[claim.key] = _Several(row.name, held)
                del space.rows[claim.key]
            mine = None if several is None else several.members.of(claim.owner)
            if several is None or mine is None or mine.expires <= _micros(now):
                return False
            several.members = several.members.renewed(claim, _micros(now))
            return True

    def release(self, claim: Claim) -> bool:
        space = self._space
        with space.mutex:
            if self._owned(claim) is not None:
                del space.rows[claim.key]
                return True
            several = space.several.get(claim.key)
            mine = None if several is None else several.members.of(claim.owner)
            if several is None or mine is None:
                return False
            now = _micros(self.clock())
            several.members = several.members.without(claim.owner)
            if not several.members.all and several.members.wanted <= now:
                del space.several[claim.key]
            return mine.expires > now

    def _owned(self, claim: Claim) -> _Row | None:
        row = self._space.rows.get(claim.key)
        if row is None or row.owner != claim.owner or row.expires <= self.clock():
            return None
        return row

    def inspect(self, name: str) -> LockInfo | None:
        held = self.holders(name)
        return held[0] if held else None

    def holders(self, name: str) -> list[LockInfo]:
        key = self.key(name)
        with self._space.mutex:
            return [info for info, alive in self._infos(key) if alive]

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return self._scan(prefix, alive=True)

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        return self._scan(prefix, alive=False)

    def _scan(self, prefix: str, *, alive: bool) -> Iterator[LockInfo]:
        space = self._space
        with space.mutex:
            names = {key: row.name for key, row in (space.rows | space.several).items()}
            found = [
                info
                for key, name in names.items()
                if name.startswith(prefix) and key == key_of(self.conf.prefix, name)
                for info, lives in self._infos(key)
                if lives is alive
            ]
        return iter(found)

    def _infos(self, key: str) -> Iterator[tuple[LockInfo, bool]]:
        """Yield each holder of a key, and whether its lease lasts."""
        now, wall = self.clock(), time.time()
        if (row := self._space.rows.get(key)) is not None:
            held = Member(row.owner, row.token, 0, _micros(row.expires), None, row.note)
            yield _info(row.name, held, row.acquired, now, wall), row.expires > now
        if (several := self._space.several.get(key)) is not None:
            for each in several.members.all:
                acquired = wall - (now - each.acquired / 1e6)
                alive = each.expires > _micros(now)
                yield _info(several.name, each, acquired, now, wall), alive

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Remove leases that ran out and were never released; a release leaves nothing."""
        with self._space.mutex:
            rows, several = self._space.rows, self._space.several
            cut = self.clock() - policy.older_than
            idle = [key for key, row in rows.items() if row.expires <= cut]
            ends = {key: max(s.members.ends(), s.members.wanted) for key, s in several.items()}
            over = [key for key, end in ends.items() if end <= _micros(cut)]
            done = Cleaned(removed=len(idle) + len(over), seen=len(rows) + len(several))
            for key in () if policy.dry_run else idle:
                del rows[key]
            for key in () if policy.dry_run else over:
                del several[key]
        return done

    def cleaned_with(self) -> Hashable:
        return ("locmem", self._location)

    def forget_parent(self) -> None:
        super().forget_parent()
        self._space.mutex = Mutex()
        self._space.rows.clear()
        self._space.several.clear()


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _info(name: str, held: Member, acquired: float, now: float, wall: float) -> LockInfo:
    ends = wall + (held.expires / 1e6 - now)
    return noted(
        held.note,
        name=name,
        fencing_token=held.token,
        acquired_at=datetime.fromtimestamp(acquired, UTC),
        expires_at=datetime.fromtimestamp(ends, UTC),
        owner=held.owner,
        slot=held.slot,
    )
