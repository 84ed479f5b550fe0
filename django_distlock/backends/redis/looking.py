"""What a Redis shows of its locks, and what is cleaned there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...core.names import key_of
from ...core.values import Cleaned, CleanPolicy, LockInfo
from ..base import BaseLockBackend
from .aclients import AsyncClient
from .clients import Client
from .keys import TAGS, digest_of
from .location import Place
from .looks import Seen, look, members, some_members
from .scripted import Scripted, ms
from .talks import Begin
from .watched import Watched

__all__ = ["Looking"]

BATCH = 500  # names a round trip


class Looking(BaseLockBackend):
    """The part of the redis backend that looks at locks."""

    located: Place
    _clients: Client
    _aclients: AsyncClient
    _way: Scripted | Watched

    def inspect(self, name: str) -> LockInfo | None:
        key = self.key(name)
        where = [(int(key[:2], 16) % TAGS, digest_of(key))]
        (seen,) = self._clients.converse(self._look(where), self.command_timeout)
        return seen.info() if seen.held else None

    async def ainspect(self, name: str) -> LockInfo | None:
        """Inspect as `inspect`, on the event loop."""
        key = self.key(name)
        where = [(int(key[:2], 16) % TAGS, digest_of(key))]
        (seen,) = await self._aclients.converse(self._look(where), self.command_timeout)
        return seen.info() if seen.held else None

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, lambda seen: seen.held)

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        return self._infos(prefix, lambda seen: seen.expired)

    def _infos(self, prefix: str, wanted: Callable[[Seen], bool]) -> Iterator[LockInfo]:
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
                    if wanted(seen):
                        info = seen.info()
                        mine = digest_of(key_of(self.conf.prefix, info.name)) == seen.digest
                        if mine and info.name.startswith(prefix):
                            yield info

    def _seen(self, names: Sequence[tuple[int, bytes]]) -> list[Seen]:
        if not names:
            return []
        return self._clients.converse(self._look(names), self.command_timeout)

    def _look(self, names: Sequence[tuple[int, bytes]]) -> Begin[list[Seen]]:
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
                if seen.record is None or not seen.record.owner or seen.left <= -older
            ]
            looked_at += len(digests)
            removed += len(idle) if policy.dry_run else self._forget(tag, idle, older)
        tag, following, _ = pages[-1]
        place = f"{tag}:{following}" if following else f"{tag + 1}:0"
        over = not following and tag + 1 == TAGS
        return Cleaned(removed=removed, seen=looked_at, cursor=None if over else place)

    def _forget(self, tag: int, digests: Sequence[bytes], older: int) -> int:
        if not digests:
            return 0
        return self._clients.converse(
            lambda: self._way.forget(tag, digests, older), self.command_timeout
        )
