"""Locks in Redis or Valkey: one server, the master of some replicas, or a cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.values import Claim, Grant, Refusal
from ..base import BaseLockBackend
from . import checks, errors, options
from .aclients import AsyncClient, AsyncNodeClient, Full
from .clients import Client, NodeClient
from .cluster import AsyncClusterClient, ClusterClient
from .inspect import Looking
from .location import locate, require_redis
from .replicas import replicated
from .scripted import SAFETY, Scripted
from .talks import Command, Talk
from .watched import Watched

__all__ = ["RedisBackend"]

T = TypeVar("T")

AT_ONCE = 32_000  # claims that are renewed in one round trip


class RedisBackend(Looking):
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
    min_attempt_timeout = 0.0
    poll = (0.02, 0.1)
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        options.check_together(alias, self.opts)
        require_redis(alias)
        from redis import exceptions as kinds

        self._unknown, self._cut_off = kinds.NoScriptError, kinds.ConnectionError
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
            self._way = self._scripted = Scripted(
                self.located.base, conf.retention, one_server=not place.nodes
            )
        else:
            self._way = Watched(self.located.base, conf.retention)
            self.queues = self.fair = self.counts_waiters = False
        self._replicas: int = self.opts.get("WAIT_REPLICAS", 0)
        # One server and scripts: then a primitive is one command, and needs no talk.
        self._direct: tuple[Scripted, NodeClient] | None = None
        if self._scripted is not None and isinstance(self._clients, NodeClient):
            self._direct = self._scripted, self._clients
        self._queued: set[str] = set()  # owners that were refused and stand in the queue

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 stand in the queue when refused."""
        patience = self._patience(limit)
        if self._direct is not None and not self._replicas:
            way, client = self._direct
            try:
                answer = client.ask(way.acquire_at_once(claim, limit > 0), patience)
            except self._unknown:  # hardly ever
                answer = self._converse_to_acquire(claim, limit, patience)
        else:
            answer = self._converse_to_acquire(claim, limit, patience)
        return self._answered(claim, answer)

    def _converse_to_acquire(self, claim: Claim, limit: float, patience: float) -> Any:
        begin = partial(self._attempt, claim, limit > 0, patience)
        return self._clients.converse(begin, patience)

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
        return min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))

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
        """Renew thousands in one round trip; one after the other without scripts."""
        ours: list[bool] = []
        for start in range(0, len(claims), AT_ONCE):
            some = claims[start : start + AT_ONCE]
            ours += self._clients.converse(
                lambda some=some: self._way.renew(some),  # type: ignore[misc]
                self.command_timeout,
            )
        return ours

    def release(self, claim: Claim) -> bool:
        # Sent before all else: others wait for it.
        try:
            return self._release_once(claim)
        except self._cut_off:
            self._release_once(claim)
            return True  # else it was freed by the first one, whose answer was lost
        finally:
            self._queued.discard(claim.owner)

    def _release_once(self, claim: Claim) -> bool:
        limit = self.command_timeout
        if self._direct is not None:
            way, client = self._direct
            try:
                return bool(client.ask(way.release_at_once(claim), limit, resend=False) == 1)
            except self._unknown:
                return self._converse_to_release(claim)
        return self._converse_to_release(claim)

    def _converse_to_release(self, claim: Claim) -> bool:
        return self._clients.converse(
            lambda: self._way.release(claim), self.command_timeout, resend=False
        )

    async def arelease(self, claim: Claim) -> bool:
        """Release as `release`, on the event loop."""

        async def once() -> bool:
            return await self._aclients.converse(
                lambda: self._way.release(claim), self.command_timeout, resend=False
            )

        try:
            return await once()
        except self._cut_off:
            await once()
            return True
        finally:
            self._queued.discard(claim.owner)

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused stands in the server's queue."""
        return claim.owner in self._queued

    def queue(self, claim: Claim, limit: float, left: float | None) -> Grant | Refusal | bool:
        """Block on the claim's mailbox."""
        turn, patience = self._turn(limit, left)
        commands, sent = self._to_wait(claim, turn), self.clock()
        try:
            return self._woken(claim, sent, self._clients.ask_all(commands, patience))
        except self._cut_off:
            return False  # the next attempt says what is the matter, if anything still is

    async def aqueue(
        self, claim: Claim, limit: float, left: float | None
    ) -> Grant | Refusal | bool:
        """Block as `queue`, on a connection of the event loop's."""
        turn, patience = self._turn(limit, left)
        commands, sent = self._to_wait(claim, turn), self.clock()
        try:
            return self._woken(claim, sent, await self._aclients.wait(commands, patience))
        except self._cut_off:
            return False
        except Full:
            # The place in the queue is kept, and what is handed over found by asking.
            await asyncio.sleep(min(turn, SAFETY / 3))
            return True

    def _to_wait(self, claim: Claim, turn: float) -> list[Command]:
        commands = self._way.wait(claim, turn)
        return commands[:1] if self._replicas and self._scripted is not None else commands

    def _woken(self, claim: Claim, sent: float, answers: Sequence[Any]) -> Grant | Refusal | bool:
        """Return the answer to the attempt that was sent with a wait, if there is one."""
        answer = None
        if self._scripted is not None and len(answers) > 1:
            *answers, answer = answers
        for each in answers:
            if isinstance(each, Exception):
                raise each
        if answer is None or isinstance(answer, Exception):
            return True  # the next attempt finds out what is the matter
        meant = self._answered(claim, answer)
        if isinstance(meant, Grant):
            return Grant(meant.fencing_token, meant.valid_for - (self.clock() - sent))
        return meant if meant.queue else True  # who is not known any more asks anew

    def _turn(self, limit: float, left: float | None) -> tuple[float, float]:
        """Return how long to block, and how long to wait for the answer to that."""
        # Spread out, so that those who wait for a dead holder's lock do not all ask at once.
        turn = max(0.001, min(limit, SAFETY * random.uniform(0.8, 1.0)))  # noqa: S311 - no secret
        spare = self.command_timeout if left is None else max(left - turn, MIN_ATTEMPT_TIMEOUT)
        return turn, turn + min(spare, self.command_timeout)

    # -- for the layers above ----------------------------------------------------------------------

    def is_conflict(self, error: Exception) -> bool:
        """Return whether the store asks to try again in a moment."""
        return errors.is_conflict(error)

    def is_passing(self, error: Exception) -> bool:
        """Return whether Sentinel or the cluster may have another server take over."""
        return bool(self.located.nodes or self.located.sentinel) and errors.is_passing(error)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.located.shown)

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.located, self._clients)

    def cleaned_with(self) -> Hashable:
        return ("redis", self.located.shown, self.located.base)

    def close_idle(self) -> None:
        """Close the connections that nobody uses now; those who come later open theirs anew."""
        self._clients.close_idle()
        self._aclients.close_idle()

    def close(self) -> None:
        super().close()
        self._clients.close()
        self._aclients.close()
