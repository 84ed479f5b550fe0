"""What a Redis shows of its locks, and what is cleaned: in one go, never over the keyspace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core.names import key_of, unreadable
from ...core.values import Cleaned, CleanPolicy, HolderInfo, LockInfo, moment, noted
from ..base import BaseLockBackend
from .client import AsyncClient, RedisClient
from .commands import Begin, Command, Talk
from .location import Target
from .records import TAGS, RedisRecord, digest_of, index_of, read
from .scripts import Scripted, ms
from .transactions import Watched

__all__ = ["RedisInspection", "SeenLock", "look", "members", "some_members"]

BATCH = 500  # names a round trip


@dataclass(frozen=True, slots=True)
class SeenLock:
    """One name of an index: its record, what is left of the lease in ms, and how many wait."""

    digest: bytes
    record: RedisRecord | None
    left: int
    waiters: int | None
    now: int
    """The server's clock, in microseconds."""

    @property
    def held(self) -> bool:
        """Whether it is held."""
        return self._is_taken and self.left > 0

    @property
    def expired(self) -> bool:
        """Whether the lease ran out without a release, or the last one of several."""
        return self._is_taken and self.left <= 0

    @property
    def _is_taken(self) -> bool:
        record = self.record
        return record is not None and (record.owner != "" or record.members is not None)

    def infos(self) -> list[LockInfo]:
        """Return what people are shown, of each holder; of those that live if one does."""
        record = self.record or RedisRecord(0)
        if record.members is None:
            return [self._info(record, self.left, None)]
        members = record.members.living(self.now) if self.left > 0 else record.members
        # Of one whose turn has come, and who has not said more yet.
        kind = HolderInfo(shared=not members.limit, limit=members.limit or None).dumps()
        return [
            self._info(
                replace(record, owner=each.owner, token=each.token, note=each.note or kind),
                (each.expires - self.now) // 1000,
                each.slot,
            )
            for each in members.all
        ]

    def _info(self, record: RedisRecord, left: int, slot: int | None) -> LockInfo:
        return noted(
            record.note,
            name=unreadable(record.name),
            fencing_token=record.token,
            # The token is drawn from the clock at the grant, unless the clock was turned back.
            acquired_at=moment(min(record.token, self.now)),
            expires_at=moment(self.now + left * 1000),
            waiters=self.waiters,
            owner=record.owner,
            slot=slot,
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


def look(base: str, names: Sequence[tuple[int, bytes]], *, counted: bool) -> Talk[list[SeenLock]]:
    """Look at names, each given by its tag and its digest; with ``counted`` at their queues, too.

    A queue is only read where the record says that there may be waiters. The state may change
    between these commands, which is good enough for people.
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
        found.append(SeenLock(digest, record, left, waiting, now))
    return found


def _sound(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


class RedisInspection(BaseLockBackend):
    """The part of the redis backend that inspects locks."""

    located: Target
    _clients: RedisClient
    _aclients: AsyncClient
    _way: Scripted | Watched

    def inspect(self, name: str) -> LockInfo | None:
        held = self.holders(name)
        return held[0] if held else None

    async def ainspect(self, name: str) -> LockInfo | None:
        """Inspect as `inspect`, on the event loop."""
        held = await self.aholders(name)
        return held[0] if held else None

    def holders(self, name: str) -> list[LockInfo]:
        (seen,) = self._clients.converse(self._look(self._where(name)), self.command_timeout)
        return seen.infos() if seen.held else []

    async def aholders(self, name: str) -> list[LockInfo]:
        """Return as `holders`, on the event loop."""
        look = self._look(self._where(name))
        (seen,) = await self._aclients.converse(look, self.command_timeout)
        return seen.infos() if seen.held else []

    def _where(self, name: str) -> list[tuple[int, bytes]]:
        key = self.key(name)
        return [(int(key[:2], 16) % TAGS, digest_of(key))]

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, lambda seen: seen.held)

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, lambda seen: seen.expired)

    def _infos(self, prefix: str, wanted: Callable[[SeenLock], bool]) -> Iterator[LockInfo]:
        told: set[bytes] = set()  # SSCAN may tell of a member twice
        cursors = [(tag, 0) for tag in range(TAGS)]
        while cursors:
            pages = self._clients.converse(
                lambda cursors=cursors: members(self.located.base, cursors, BATCH),  # type: ignore[misc]
                self.command_timeout,
            )
            cursors = [(tag, cursor) for tag, cursor, _ in pages if cursor]
            names = [(tag, each) for tag, _, some in pages for each in some if each not in told]
            told.update(digest for _, digest in names)
            for start in range(0, len(names), BATCH):
                for seen in self._seen(names[start : start + BATCH]):
                    for info in seen.infos() if wanted(seen) else ():
                        mine = digest_of(key_of(self.conf.prefix, info.name)) == seen.digest
                        if mine and info.name.startswith(prefix):
                            yield info

    def _seen(self, names: Sequence[tuple[int, bytes]]) -> list[SeenLock]:
        if not names:
            return []
        return self._clients.converse(self._look(names), self.command_timeout)

    def _look(self, names: Sequence[tuple[int, bytes]]) -> Begin[list[SeenLock]]:
        return partial(look, self.located.base, names, counted=self.counts_waiters)

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Remove from the index what was held and never released.

        The records themselves, queues and mailboxes end by themselves.
        """
        first, at = map(int, cursor.split(":")) if cursor else (0, 0)
        pages = self._clients.converse(
            lambda: some_members(self.located.base, first, at, policy.batch), self.command_timeout
        )
        older = ms(policy.older_than)
        removed = looked_at = 0
        for tag, _, digests in pages:
            idle = [
                seen.digest
                for seen in self._seen([(tag, digest) for digest in digests])
                if not (seen.held or seen.expired) or seen.left <= -older
            ]
            looked_at += len(digests)
            removed += len(idle) if policy.dry_run else self._forget(tag, idle, older)
        tag, following, _ = pages[-1]
        target = f"{tag}:{following}" if following else f"{tag + 1}:0"
        over = not following and tag + 1 == TAGS
        return Cleaned(removed=removed, seen=looked_at, cursor=None if over else target)

    def _forget(self, tag: int, digests: Sequence[bytes], older: int) -> int:
        if not digests:
            return 0
        return self._clients.converse(
            lambda: self._way.forget(tag, digests, older), self.command_timeout
        )
