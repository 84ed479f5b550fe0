"""Looking at what is held, by plain commands: in one go, and never over the keyspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...core.names import unreadable
from ...core.values import LockInfo, noted
from .keys import TAGS, index_of
from .records import Record, read
from .talks import Command, Talk

__all__ = ["Seen", "look", "members", "some_members"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Seen:
    """One name of an index: its record, what is left of the lease in ms, and how many wait."""

    digest: bytes
    record: Record | None
    left: int
    waiters: int | None
    now: int
    """The server's clock, in microseconds."""

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self.record is not None and self.record.owner != "" and self.left > 0

    @property
    def expired(self) -> bool:
        """Whether the lease ran out, and nobody has released it."""
        return self.record is not None and self.record.owner != "" and self.left <= 0

    def info(self) -> LockInfo:
        """Return what people are shown."""
        record = self.record or Record(0)
        return noted(
            record.note,
            name=unreadable(record.name),
            fencing_token=record.token,
            # The token is drawn from the clock at the grant, unless the clock was turned back.
            acquired_at=_EPOCH + timedelta(microseconds=min(record.token, self.now)),
            expires_at=_EPOCH + timedelta(microseconds=self.now, milliseconds=self.left),
            waiters=self.waiters,
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


def look(base: str, names: Sequence[tuple[int, bytes]], *, counted: bool) -> Talk[list[Seen]]:
    """Look at names, each given by its tag and its digest; with ``counted`` at their queues, too.

    A queue is only looked at where the record says that somebody may stand in it. Several commands,
    and somebody may come between: for people, it is good enough.
    """
    starts = {tag: index_of(base, tag)[:-1] for tag, _ in names}
    commands: list[Command] = [("TIME",)]
    for tag, digest in names:
        key = starts[tag] + digest
        commands += ("GET", key), ("PTTL", key)
    answers = _sound((yield commands))
    seconds, micros = answers[0]
    now = int(seconds) * 1_000_000 + int(micros)
    records = [read(raw) for raw in answers[1::2]]
    queued = [
        each
        for each, record in zip(names, records, strict=True)
        if counted and record is not None and record.queued
    ]
    waiters: dict[bytes, int] = {}
    if queued:
        lengths = _sound((yield [("LLEN", starts[tag] + b"q:" + digest) for tag, digest in queued]))
        waiters = {digest: int(each) for (_, digest), each in zip(queued, lengths, strict=True)}
    found = []
    for (_, digest), record, ttl in zip(names, records, answers[2::2], strict=True):
        left = ttl - (record.retention if record is not None else 0)
        waiting = waiters.get(digest, 0) if counted else None
        found.append(Seen(digest, record, left, waiting, now))
    return found


def _sound(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers
