"""Looking at what is held, by plain commands: in one go, and never over the keyspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...names import unreadable
from ...values import LockInfo, Note
from .keys import TAGS, index_of
from .records import Record, read
from .talks import Command, Talk

__all__ = ["Seen", "look", "members", "some_members"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Seen:
    """One name of an index: its record, what is left of the lease in ms, and who waits."""

    digest: bytes
    record: Record | None
    left: int
    waiters: int
    now: int
    """The server's clock, in microseconds."""

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self.record is not None and self.record.owner != "" and self.left > 0

    @property
    def lapsed(self) -> bool:
        """Whether the lease ran out, and nobody has released it."""
        return self.record is not None and self.record.owner != "" and self.left <= 0

    def info(self, *, counted: bool) -> LockInfo:
        """Return what people are shown."""
        record = self.record or Record(0)
        note = Note.loads(record.note)
        return LockInfo(
            name=unreadable(record.name),
            holder=note.holder,
            fencing_token=record.token,
            # The token is drawn from the clock at the grant, unless the clock was turned back.
            acquired_at=_EPOCH + timedelta(microseconds=min(record.token, self.now)),
            expires_at=_EPOCH + timedelta(microseconds=self.now, milliseconds=self.left),
            waiters=self.waiters if counted else None,
            metadata=note.metadata,
            owner=record.owner,
        )


def members(base: str, cursors: Sequence[tuple[int, int]], size: int) -> Talk[Any]:
    """Read on in indexes, each from a cursor: return [(tag, next cursor, digests)]."""
    answers = yield [
        ("SSCAN", index_of(base, tag), cursor, "COUNT", size) for tag, cursor in cursors
    ]
    pages = []
    for (tag, _), answer in zip(cursors, answers, strict=True):
        if isinstance(answer, Exception):
            raise answer
        pages.append((tag, int(answer[0]), list(answer[1])))
    return pages


def some_members(base: str, first: int, cursor: int, size: int) -> Talk[Any]:
    """Read on in the indexes from a cursor in that of the tag ``first``, ``size`` names or so."""
    counts = yield [("SCARD", index_of(base, tag)) for tag in range(first, TAGS)]
    total, last = 0, first
    for tag, count in enumerate(counts, first):
        if isinstance(count, Exception):
            raise count
        total += count
        if tag > first and total > size:
            break
        last = tag
    cursors = [(tag, cursor if tag == first else 0) for tag in range(first, last + 1)]
    return (yield from members(base, cursors, size))


def look(base: str, names: Sequence[tuple[int, bytes]]) -> Talk[list[Seen]]:
    """Look at names, each given by its tag and its digest."""
    commands: list[Command] = [("TIME",)]
    for tag, digest in names:
        start = index_of(base, tag)[:-1]
        # Several commands, and somebody may come between: for people, it is good enough.
        commands += [
            ("GET", start + digest),
            ("PTTL", start + digest),
            ("LLEN", start + b"q:" + digest),
        ]
    answers = yield commands
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    seconds, micros = answers[0]
    now = int(seconds) * 1_000_000 + int(micros)
    found = []
    for number, (_, digest) in enumerate(names):
        raw, ttl, waiters = answers[1 + 3 * number : 4 + 3 * number]
        record = read(raw)
        left = int(ttl) - (record.retention if record is not None else 0)
        found.append(Seen(digest, record, left, int(waiters), now))
    return found
