"""What this process knows of its own leases and queue entries, and what it writes for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.members import Members
from ...core.threads import Event
from ...core.values import Claim, Grant
from .api import Op, Txn, op
from .records import ConsulRecord, Paths, entry_of
from .sessions import ConsulSession

__all__ = ["ConsulEntry", "Hold", "Plan", "Ways", "chunks", "now_ms"]


@dataclass(slots=True)
class Hold:
    """A lease of this process: what its next write is compared with."""

    paths: Paths
    session: str
    index: int
    token: int
    lock_index: int
    record: ConsulRecord
    until: float
    """When it is over by our clock, counted from before the request."""
    doubtful: bool = False
    """Whether a release was sent that may have been done."""
    entry: str = ""
    """The key of the queue entry by which it was got: it is kept until the release, so that who
    comes next has but one key to watch. Not of a lock that several may hold."""
    share: str = ""
    """The key of the holder's own where several may hold the lock."""

    @property
    def lock(self) -> str:
        """The key by which it is held."""
        return self.share or self.paths.lock

    def grant(self, ttl: float) -> Grant:
        """Return what the holder is told that asks again."""
        return Grant(self.token, ttl, slot=self.record.slot)


@dataclass(slots=True)
class ConsulEntry:
    """A queue entry."""

    key: str
    session: str
    created: int
    """Consul's index at its making, by which the queue is in order."""
    index: int
    """From which on changes are watched."""
    look: float = 0.0
    """When the queue is read again by our clock, though nothing told of a change."""
    called: Event = field(default_factory=Event)
    """Set when it may have become the first one of this process."""
    ahead: list[str] = field(default_factory=list)
    """The entries before it, the nearest last."""
    ready: bool = False
    """Whether the one watched has gone: to be tried at once."""
    shared: bool = False
    """Whether the first one waits for those who hold the lock together, and not for one holder."""

    def still_ahead(self, txn: Txn) -> list[str]:
        """Return the entries that were still ahead when an `attempt` failed."""
        failed = txn.failed or {}
        return [key for number, key in enumerate(self.ahead, _CHECKS) if number in failed]


LONG_NOTE = 4_000  # characters; all entries are read when a waiter joins the queue
# Of an attempt, before those of the entries ahead: the lock, its guard, and the entry.
_CHECKS = 3


class Plan(NamedTuple):
    """What takes a lock, if all is as it was read."""

    before: Sequence[Op]
    members: Members | None = None
    """Who holds it then, where several may; the claim's owner is the last of them."""
    guard: int = 0
    """The index of the guard that such a grant writes; 0: there is none yet."""


def now_ms() -> int:
    """Return the time of day in ms: for people, and for cleaning."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Ways:
    """What is written, by the behaviour of the sessions.

    With ``keeps`` ("release") the key of a free lock stays, so that its LockIndex goes on rising.
    """

    keeps: bool

    def first_record(self, claim: Claim, slot: int | None) -> ConsulRecord:
        """Return the record of a grant."""
        now = now_ms()
        return ConsulRecord(claim.owner, 0, claim.ttl, now, now, None, claim.name, claim.note, slot)

    def next_record(self, claim: Claim, hold: Hold) -> ConsulRecord:
        """Return the record of a renewal, which shows by its beat that the holder lives."""
        old = hold.record
        return ConsulRecord(
            owner=claim.owner,
            beat=old.beat + 1,
            ttl=claim.ttl,
            since=old.since,
            at=now_ms(),
            token=hold.token,
            name=claim.name,
            note=claim.note or old.note,
            slot=old.slot,
        )

    def is_free(self, paths: Paths, *, new: bool) -> Op:
        """Return what fails if one holds a lock alone that was not read.

        Where keys are kept, most are there; a ``new`` one is not.
        """
        if self.keeps and not new:
            return op("check-session", paths.lock, session=None)
        return op("check-not-exists", paths.lock)

    def attempt(self, paths: Paths, entry: ConsulEntry | None, *, new: bool) -> list[Op]:
        """Return what has to be so for a lock to be taken that was not read."""
        ops = [self.is_free(paths, new=new), op("check-not-exists", paths.guard)]
        if entry is None:
            return [*ops, op("check-not-exists", paths.mark)]
        ops.append(op("check-session", entry.key, session=entry.session))
        return ops + [op("check-not-exists", key) for key in entry.ahead]

    def take(self, paths: Paths, session: str, value: bytes, plan: Plan, key: str) -> list[Op]:
        """Return what takes a lock by ``key``: its own, or that of a share."""
        lock = op("lock", key, session=session, value=value)
        if plan.members is None:
            return [*plan.before, lock]
        return [
            *plan.before,
            # Fails while the lock-delay of the last one goes on who held it alone.
            op("lock", paths.lock, session=session),
            self._unlock(paths.lock, session),
            op("cas", paths.guard, index=plan.guard, value=guard_value(plan.members.limit, key)),
            lock,
        ]

    def _unlock(self, lock: str, session: str) -> Op:
        if self.keeps:
            return op("unlock", lock, session=session, value=b"%d" % now_ms())
        return op("delete", lock)

    def free(self, hold: Hold) -> list[Op]:
        """Return what frees a lock that a hold has, if it has it still."""
        # "delete-cas" would not do: it says yes where there is no key, to whom has lost the lock.
        check = op("check-index", hold.lock, index=hold.index)
        if hold.share:
            return [check, op("delete", hold.share)]
        return [check, self._unlock(hold.lock, hold.session)]

    def renew(self, hold: Hold, record: ConsulRecord, session: str) -> list[Op]:
        """Return what writes a renewal, moving the lock to another session where that differs."""
        lock = hold.lock
        ops = [op("check-index", lock, index=hold.index)]
        if session != hold.session:
            ops.append(op("unlock", lock, session=hold.session))
        # "cas" would do for the value, but sets the LockIndex to 0.
        return [*ops, op("lock", lock, session=session, value=record.dumps())]

    def downgrade(self, hold: Hold, record: ConsulRecord, session: str) -> list[Op]:
        """Return what has a lock that is held alone be shared from now on."""
        paths = hold.paths
        share = paths.share(record.owner)
        left = [op("delete", hold.entry)] if hold.entry else []
        return [
            *self.free(hold),
            *left,
            op("set", paths.guard, value=guard_value(0, share)),
            op("lock", share, session=session, value=record.dumps()),
        ]

    def join(self, paths: Paths, claim: Claim, session: ConsulSession) -> tuple[str, list[Op]]:
        """Return a new entry's key, and what joins the queue and shows all that there is."""
        key = entry_of(paths, claim.owner, session.id)
        ops = [
            op("set", paths.mark, value=mark(key)),
            op("lock", key, session=session.id, value=entry_value(claim.note)),
            op("get-tree", paths.all),
        ]
        return key, ops


def entry_value(note: str) -> bytes:
    """Return the value of a queue entry: since when, and who, for people."""
    return f"{now_ms()} {note if len(note) < LONG_NOTE else ''}".encode("utf-8", "replace")


def guard_value(limit: int, key: str) -> bytes:
    """Return the value of a guard: how many may hold the lock (0: any number), who last, and when.

    Consul does not count a write that changes nothing: without the holder's key, two grants of one
    millisecond would be one.
    """
    return f"{limit} {key.rpartition('/')[2]} {now_ms()}".encode("ascii")


def mark(key: str) -> bytes:
    """Return the value of the mark of a queue: whose entry is the last one, and since when."""
    return f"{key} {now_ms()}".encode("ascii")


def chunks(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Return the numbers of what fits together, each of its size, in the order given."""
    found: list[list[int]] = [[]]
    filled = 0
    for number, size in enumerate(sizes):
        if filled + size > most:
            found.append([])
            filled = 0
        found[-1].append(number)
        filled += size
    return [each for each in found if each]
