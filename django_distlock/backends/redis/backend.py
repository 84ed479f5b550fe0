"""Locks in Redis or Valkey: one server, the master of some replicas, or a cluster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.loops import PerLoop
from ...core.values import Claim, Grant, Refusal
from ..base import BaseLockBackend
from . import checks, errors, options
from .client import AsyncClient, AsyncNodeClient, NodeClient, RedisClient
from .cluster import AsyncClusterClient, ClusterClient
from .commands import Begin, replicated
from .inspect import RedisInspection
from .location import locate, require_redis
from .scripts import Scripted
from .transactions import Watched
from .waiting import Answer, LoopMailbox, LoopMailboxes, Mailboxes, ThreadMailbox

__all__ = ["RedisBackend"]

MOST_RENEWED = 32_000  # claims that are renewed in one round trip
MAX_CONNECTIONS = 50  # of a process, and of each event loop, to one server


class RedisBackend(RedisInspection):
    """Locks in Redis or Valkey, by scripts of one round trip, with a queue in the server.

    LOCATION is an alias of CACHES, by default ``"default"``, of django-redis or of Django's own
    cache, whose connection settings, KEY_PREFIX and VERSION count here too; or a URL:
    ``redis://``, ``rediss://`` (TLS) or ``unix://``. OPTIONS: ``COMMAND_TIMEOUT``, the seconds (5)
    after which a command without an answer counts as failed; ``SCRIPTING``, False where scripts are
    forbidden; ``WAIT_REPLICAS``, how many replicas (0) have to have a grant before it counts;
    ``SENTINELS``, a list of (host, port), with the service's name as the host of the URL, and
    ``SENTINEL_KWARGS``, what to connect to them with; ``CLUSTER``, True for a cluster, of which
    LOCATION is the URL of a node or a list of them; ``MAX_CONNECTIONS`` of a process, and of each
    event loop, to one server (50); ``CONNECTION``, further arguments of redis-py's connections:
    ``credential_provider``, ``username``, ``password``, ``client_name``, ``ssl_...``.
    """

    queues = fair = notifies = counts_waiters = cleans = native_async = uncancellable = True
    supports_shared = supports_limit = True
    # With wait=0 the server is asked once, and the claim does not queue.
    min_attempt_timeout = 0.0
    # Until then the mailbox asks for one of each name.
    queue_limit = 5.0
    poll = (0.02, 0.1)
    at_once = 500
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        options.check_together(alias, self.opts)
        require_redis(alias)
        from redis import exceptions as kinds

        self._unknown, self._cut_off = kinds.NoScriptError, kinds.ConnectionError
        self.store_errors = (kinds.RedisError,)
        self.located = target = locate(alias, conf.location, self.opts)
        limit, most = self.command_timeout, self.opts.get("MAX_CONNECTIONS", MAX_CONNECTIONS)
        self._clients: RedisClient = (ClusterClient if target.nodes else NodeClient)(
            target, limit, most
        )
        self._aclients: AsyncClient = (AsyncClusterClient if target.nodes else AsyncNodeClient)(
            target, limit, most
        )
        self._way: Scripted | Watched
        self._scripted: Scripted | None = None
        if self.opts.get("SCRIPTING", True):
            self._way = self._scripted = Scripted(
                target.base, conf.retention, one_server=not target.nodes
            )
        else:
            self._way = Watched(target.base, conf.retention)
            self.queues = self.fair = self.counts_waiters = False
        self._replicas: int = self.opts.get("WAIT_REPLICAS", 0)
        if self._replicas or self._scripted is None:
            self.at_once = 1
        # With one server and scripts a primitive is a single command.
        self._direct: tuple[Scripted, NodeClient, AsyncNodeClient] | None = None
        node, anode = self._clients, self._aclients
        if self._scripted and isinstance(node, NodeClient) and isinstance(anode, AsyncNodeClient):
            self._direct = self._scripted, node, anode
        self._mailboxes = Mailboxes(self._mailbox, target.base)
        self._loops = PerLoop(lambda: LoopMailboxes(self._loop_mailbox, target.base))
        self._queued: dict[str, float] = {}  # owners in the queue, and since when

    def _mailbox(self, home: bytes) -> ThreadMailbox:
        along = not self._replicas
        return ThreadMailbox(self._way, home, self.clock, self._clients, along=along)

    def _loop_mailbox(self, home: bytes) -> LoopMailbox:
        return LoopMailbox(
            self._way,
            home,
            self.clock,
            self._aclients,
            along=not self._replicas,
            patience=self.command_timeout,
        )

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 enter the queue when refused."""
        patience = self._patience(limit)
        home = self._mailbox_of(claim).home if limit > 0 else b""
        if self._direct is not None and not self._replicas:
            way, client, _ = self._direct
            with suppress(self._unknown):  # the server does not know the script yet
                answer = client.ask(way.acquire_at_once(claim, home), patience)
                return self._answered(claim, answer)
        begin = self._attempt(claim, home, patience)
        return self._answered(claim, self._clients.converse(begin, patience))

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt as `try_acquire`, on the event loop."""
        patience = self._patience(limit)
        home = (await self._loop_mailbox_of(claim)).home if limit > 0 else b""
        if self._direct is not None and not self._replicas:
            way, _, client = self._direct
            with suppress(self._unknown):
                answer = await client.ask_packed(way.acquire_at_once(claim, home), patience)
                return self._answered(claim, answer)
        begin = self._attempt(claim, home, patience)
        return self._answered(claim, await self._aclients.converse(begin, patience))

    def _attempt(self, claim: Claim, home: bytes, patience: float) -> Begin[Any]:
        if self._replicas:
            return lambda: replicated(self._way, claim, home, self._replicas, patience)
        return lambda: self._way.acquire(claim, home)

    def _patience(self, limit: float) -> float:
        return min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))

    def _answered(self, claim: Claim, answer: Any) -> Grant | Refusal:
        meant = self._way.understand(claim, answer)
        if isinstance(meant, Grant):
            self._queued.pop(claim.owner, None)
        elif meant.queue and self.queues:
            self._queued.setdefault(claim.owner, self.clock())
        return meant

    def try_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        """Attempt each once, all in one write."""
        answers = self._clients.converse(self._attempts(claims), self._patience(limit))
        return self._grants(claims, answers)

    async def atry_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        """Attempt as `try_acquire_many`, on the event loop."""
        answers = await self._aclients.converse(self._attempts(claims), self._patience(limit))
        return self._grants(claims, answers)

    def _attempts(self, claims: Sequence[Claim]) -> Begin[list[Any]]:
        return lambda: self._together().acquire_many(claims)

    def _together(self) -> Scripted:
        """Return the way that takes many at once."""
        if self._scripted is None:
            raise NotImplementedError  # see `at_once`
        return self._scripted

    def _grants(self, claims: Sequence[Claim], answers: list[Any]) -> list[Grant | None]:
        meant = map(self._way.understand, claims, answers)
        return [each if isinstance(each, Grant) else None for each in meant]

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
        for start in range(0, len(claims), MOST_RENEWED):
            some = claims[start : start + MOST_RENEWED]
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
            self._queued.pop(claim.owner, None)

    def _release_once(self, claim: Claim) -> bool:
        limit = self.command_timeout
        if self._direct is not None:
            way, client, _ = self._direct
            with suppress(self._unknown):
                return bool(client.ask(way.release_at_once(claim), limit, resend=False) == 1)
        return self._clients.converse(lambda: self._way.release(claim), limit, resend=False)

    async def arelease(self, claim: Claim) -> bool:
        """Release as `release`, on the event loop."""
        try:
            return await self._arelease_once(claim)
        except self._cut_off:
            await self._arelease_once(claim)
            return True
        finally:
            self._queued.pop(claim.owner, None)

    async def _arelease_once(self, claim: Claim) -> bool:
        limit = self.command_timeout
        if self._direct is not None:
            way, _, client = self._direct
            with suppress(self._unknown):
                packed = way.release_at_once(claim)
                return bool(await client.ask_packed(packed, limit, resend=False) == 1)
        return await self._aclients.converse(lambda: self._way.release(claim), limit, resend=False)

    def release_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Release each, all in one write."""
        begin, limit = self._releases(claims), self.command_timeout
        try:
            return self._clients.converse(begin, limit, resend=False)
        except self._cut_off:
            self._clients.converse(begin, limit, resend=False)
            return [True] * len(claims)  # see `release`
        finally:
            self._leave_queue(claims)

    async def arelease_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Release as `release_many`, on the event loop."""
        begin, limit = self._releases(claims), self.command_timeout
        try:
            return await self._aclients.converse(begin, limit, resend=False)
        except self._cut_off:
            await self._aclients.converse(begin, limit, resend=False)
            return [True] * len(claims)
        finally:
            self._leave_queue(claims)

    def _releases(self, claims: Sequence[Claim]) -> Begin[list[bool]]:
        return lambda: self._together().release_many(claims)

    def _leave_queue(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._queued.pop(claim.owner, None)

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused is in the server's queue."""
        return claim.owner in self._queued

    def queue(self, claim: Claim, limit: float, left: float | None) -> Grant | Refusal | bool:
        """Wait until the process's mailbox is told of the claim."""
        since = self._queued.get(claim.owner, 0.0)
        told = self._mailbox_of(claim).wait(claim, since, limit, self._spare(left))
        return self._woken(claim, told)

    async def aqueue(
        self, claim: Claim, limit: float, left: float | None
    ) -> Grant | Refusal | bool:
        """Wait as `queue`, for the loop's mailbox."""
        since = self._queued.get(claim.owner, 0.0)
        mailbox = await self._loop_mailbox_of(claim)
        return self._woken(claim, await mailbox.wait(claim, since, limit))

    def _mailbox_of(self, claim: Claim) -> ThreadMailbox:
        return self._mailboxes.of(self._way.tag_of(claim))

    async def _loop_mailbox_of(self, claim: Claim) -> LoopMailbox:
        return (await self._loops.mine()).of(self._way.tag_of(claim))

    def _spare(self, left: float | None) -> float:
        """Return how long the server may take to answer, with so many seconds to wait."""
        spare = self.command_timeout if left is None else max(left, MIN_ATTEMPT_TIMEOUT)
        return min(spare, self.command_timeout)

    def _woken(self, claim: Claim, told: Answer) -> Grant | Refusal | bool:
        if isinstance(told, Grant):
            self._queued.pop(claim.owner, None)
        return told

    # -- for the layers above ----------------------------------------------------------------------

    def is_conflict(self, error: Exception) -> bool:
        """Return whether the store asks to try again in a moment."""
        return errors.is_conflict(error)

    def is_passing(self, error: Exception) -> bool:
        """Return whether Sentinel or the cluster may have another server take over."""
        return bool(self.located.nodes or self.located.sentinel) and errors.is_passing(error)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.located.shown)

    def check(self) -> list[CheckMessage]:
        return checks.check_ignored(self.alias, [self.located])

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.located, self._clients)

    def cleaned_with(self) -> Hashable:
        return ("redis", self.located.shown, self.located.base)

    def close_idle(self) -> None:
        """Close idle connections; later calls open new ones."""
        self._clients.close_idle()
        self._aclients.close_idle()

    def close(self) -> None:
        super().close()
        self._loops.close()
        self._clients.close()
        self._aclients.close()
