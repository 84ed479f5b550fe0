"""Locks in Redis or Valkey: one server, the master of some replicas, or a cluster."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...flow import LEAST_PATIENCE
from ...names import key_of
from ...values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from ..base import BaseLockBackend
from . import checks, errors, options
from .aclients import AsyncClient, AsyncNodeClient, Full
from .clients import Client, NodeClient
from .cluster import AsyncClusterClient, ClusterClient
from .keys import TAGS, digest_of
from .location import locate, require_redis
from .looks import Seen, look, members, some_members
from .replicas import replicated
from .scripted import SAFETY, Scripted, ms
from .talks import Talk
from .watched import Watched

__all__ = ["RedisBackend"]

T = TypeVar("T")

BATCH = 500  # claims or names a round trip


class RedisBackend(BaseLockBackend):
    """Locks in Redis or Valkey, by scripts of one round trip, with a queue in the server.

    LOCATION is an alias of CACHES, by default ``"default"``, of django-redis or of Django's own
    cache, whose connection settings, KEY_PREFIX and VERSION count here too; or a URL:
    ``redis://``, ``rediss://`` (TLS) or ``unix://``. OPTIONS: ``COMMAND_TIMEOUT``, the seconds (5)
    after which a command without an answer counts as failed; ``SCRIPTING``, False where scripts are
    forbidden; ``WAIT_REPLICAS``, how many replicas (0) have to have a grant before it counts;
    ``SENTINELS``, a list of (host, port), with the service's name as the host of the URL, and
    ``SENTINEL_KWARGS``, what to connect to them with; ``CLUSTER``, True for a cluster, of which
    LOCATION is the URL of a node or a list of them.
    """

    queues = fair = notifies = counts_waiters = cleans = native_async = True
    # Whoever does not wait at all asks once, and does not queue.
    least_patience = 0.0
    poll = (0.02, 0.1)
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        options.check_together(alias, self.opts)
        require_redis(alias)
        from redis import exceptions as kinds

        self._unknown, self._cut_off = kinds.NoScriptError, kinds.ConnectionError
        self._asks_again = (kinds.WatchError, kinds.BusyLoadingError)
        self.store_errors = (kinds.RedisError,)
        self.located = locate(alias, conf.location, self.opts)
        place, limit = self.located, self.command_timeout
        self._clients: Client = (ClusterClient if place.nodes else NodeClient)(place, limit)
        self._aclients: AsyncClient = (AsyncClusterClient if place.nodes else AsyncNodeClient)(
            place, limit
        )
        self._way: Scripted | Watched
        self._scripted: Scripted | None = None
        if self.opts.get("SCRIPTING", True):
            self._way = self._scripted = Scripted(self.located.base, conf.retention)
        else:
            self._way = Watched(self.located.base, conf.retention)
            self.queues = self.fair = self.counts_waiters = False
        self._replicas: int = self.opts.get("WAIT_REPLICAS", 0)
        self._queued: set[str] = set()  # owners that were refused and stand in the queue

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 stand in the queue when refused."""
        patience = self._patience(limit)
        if self._scripted is not None and not self._replicas:
            # Nearly always the server knows the script, and this is half the work of a talk.
            with suppress(self._unknown):
                command = self._scripted.acquire_at_once(claim, limit > 0)
                return self._answered(claim, self._clients.ask(command, patience))
        begin = partial(self._attempt, claim, limit > 0, patience)
        return self._answered(claim, self._clients.converse(begin, patience))

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt as `try_acquire`, on the event loop."""
        patience = self._patience(limit)
        begin = partial(self._attempt, claim, limit > 0, patience)
        return self._answered(claim, await self._aclients.converse(begin, patience))

    def _attempt(self, claim: Claim, join: bool, patience: float) -> Talk[Any]:
        if self._replicas:
            return replicated(self._way, claim, join, self._replicas, patience)
        return self._way.acquire(claim, join)

    def _patience(self, limit: float) -> float:
        return min(self.command_timeout, max(limit, LEAST_PATIENCE))

    def _answered(self, claim: Claim, answer: Any) -> Grant | Refusal:
        meant = self._way.understand(claim, answer)
        if isinstance(meant, Grant):
            self._queued.discard(claim.owner)
        elif meant.queue and self.queues:
            self._queued.add(claim.owner)
        return meant

    def renew(self, claim: Claim) -> bool:
        return self._clients.converse(lambda: self._way.renew([claim]), self.command_timeout)[0]

    async def arenew(self, claim: Claim) -> bool:
        """Renew as `renew`, on the event loop."""
        answers = await self._aclients.converse(
            lambda: self._way.renew([claim]), self.command_timeout
        )
        return answers[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew those of one tag by one script, so in 64 commands at the most for each 32,000."""
        ours: dict[str, bool] = {}
        by_tag: dict[bytes, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_tag[self._way.keys(claim).index].append(claim)
        for same in by_tag.values():
            for start in range(0, len(same), BATCH):
                some = same[start : start + BATCH]
                answers = self._clients.converse(
                    lambda some=some: self._way.renew(some),  # type: ignore[misc]
                    self.command_timeout,
                )
                ours.update(zip((claim.owner for claim in some), answers, strict=True))
        return [ours[claim.owner] for claim in claims]

    def release(self, claim: Claim) -> bool:
        self._queued.discard(claim.owner)
        try:
            return self._release_once(claim)
        except self._cut_off:
            if self._release_once(claim):
                return True
            raise  # the first one may have freed it, or the lock was lost: unknown

    def _release_once(self, claim: Claim) -> bool:
        limit = self.command_timeout
        if self._scripted is not None:
            with suppress(self._unknown):
                command = self._scripted.release_at_once(claim)
                return bool(self._clients.ask(command, limit, resend=False) == 1)
        return self._clients.converse(lambda: self._way.release(claim), limit, resend=False)

    async def arelease(self, claim: Claim) -> bool:
        """Release as `release`, on the event loop."""
        self._queued.discard(claim.owner)

        async def once() -> bool:
            return await self._aclients.converse(
                lambda: self._way.release(claim), self.command_timeout, resend=False
            )

        try:
            return await once()
        except self._cut_off:
            if await once():
                return True
            raise

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Tell whether a claim that was refused stands in the server's queue."""
        return claim.owner in self._queued

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Block on the claim's mailbox."""
        turn, patience = self._turn(limit, left)
        try:
            return _woken(self._clients.ask_all(self._way.wait(claim, turn), patience))
        except self._cut_off:
            return False  # the next attempt says what is the matter, if anything still is

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Block as `queue`, on a connection of the event loop's."""
        turn, patience = self._turn(limit, left)
        try:
            return _woken(await self._aclients.wait(self._way.wait(claim, turn), patience))
        except self._cut_off:
            return False
        except Full:
            # The place in the queue is kept, and what is handed over found by asking.
            await asyncio.sleep(min(turn, SAFETY / 3))
            return True

    def _turn(self, limit: float, left: float | None) -> tuple[float, float]:
        """Return how long to block, and how long to wait for the answer to that."""
        # Spread out, so that those who wait for a dead holder's lock do not all ask at once.
        turn = max(0.001, min(limit, SAFETY * random.uniform(0.8, 1.0)))  # noqa: S311
        spare = self.command_timeout if left is None else max(left - turn, LEAST_PATIENCE)
        return turn, turn + min(spare, self.command_timeout)

    # -- looking -----------------------------------------------------------------------------------

    def inspect(self, name: str) -> LockInfo | None:
        key = self.key(name)
        where = [(int(key[:2], 16) % TAGS, digest_of(key))]
        (seen,) = self._clients.converse(
            lambda: look(self.located.base, where), self.command_timeout
        )
        return seen.info(counted=self.counts_waiters) if seen.held else None

    async def ainspect(self, name: str) -> LockInfo | None:
        """Inspect as `inspect`, on the event loop."""
        key = self.key(name)
        where = [(int(key[:2], 16) % TAGS, digest_of(key))]
        (seen,) = await self._aclients.converse(
            lambda: look(self.located.base, where), self.command_timeout
        )
        return seen.info(counted=self.counts_waiters) if seen.held else None

    def scan(self, prefix: str) -> Iterator[LockInfo]:
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
                    if seen.held:
                        info = seen.info(counted=self.counts_waiters)
                        mine = digest_of(key_of(self.conf.prefix, info.name)) == seen.digest
                        if mine and info.name.startswith(prefix):
                            yield info

    def _seen(self, names: Sequence[tuple[int, bytes]]) -> list[Seen]:
        if not names:
            return []
        return self._clients.converse(lambda: look(self.located.base, names), self.command_timeout)

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

    # -- for the layers above ----------------------------------------------------------------------

    def is_conflict(self, error: Exception) -> bool:
        """Tell whether others wrote each time that it was tried, or the server has just started."""
        return isinstance(error, self._asks_again)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.located.shown)

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.located, self._clients)

    def cleaned_with(self) -> Hashable:
        return ("redis", self.located.shown, self.located.base)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run what has no twin of its own on a thread, which keeps no connection."""

        def closing() -> T:
            try:
                return work()
            finally:
                self.close_thread()

        return await super().off_loop(closing)

    def close_thread(self) -> None:
        self._clients.close_thread()

    def close_idle(self) -> None:
        """Close the connections that nobody uses now; those who come later open theirs anew."""
        self._clients.close_idle()
        self._aclients.close_idle()

    def close(self) -> None:
        super().close()
        self._clients.close()
        self._aclients.close()


def _woken(answers: Sequence[Any]) -> bool:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return True
