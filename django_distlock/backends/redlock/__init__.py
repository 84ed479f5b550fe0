"""Locks that a majority of independent Redis servers grants (Redlock), with fencing tokens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.names import key_of
from ...core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from ...exceptions import InvalidLockBackendError
from ..base import BaseLockBackend
from ..options import positive
from ..redis.checks import check_ignored
from ..redis.location import PROTOCOL, locate_all, require_redis
from ..redis.options import CONNECTION
from . import algorithm, checks, inspect, waiting
from .algorithm import Names
from .nodes import Cluster, Node
from .pool import AsyncNodePool, NodePool
from .rounds import Operation, QuorumError

__all__ = ["RedlockBackend"]

BATCH = 500
"""Locks that are renewed in one round."""


class RedlockBackend(BaseLockBackend):
    """Locks on a majority of three or more independent Redis servers.

    LOCATION is a list of URLs, an odd number of them, each of another server; none is a replica of
    another. OPTIONS: ``COMMAND_TIMEOUT``, and ``NODE_TIMEOUT``: the seconds that one round of
    questions may take, by default a twentieth of the ttl, and at least half a second.
    """

    cleans = True
    supports_shared = True
    native_async = True
    notifies = True
    # Whoever does not wait at all asks once, and is not noted as waiting.
    min_attempt_timeout = 0.0
    # Of those that have no connection to wait on.
    poll: ClassVar[tuple[float, float]] = (0.005, 0.1)
    store_errors = (QuorumError,)
    options: ClassVar[OptionSpec] = {
        **BaseLockBackend.options,
        **CONNECTION,
        "NODE_TIMEOUT": positive,
    }

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        require_redis(alias)
        targets = locate_all(alias, conf.location, self.opts)
        where = f"DISTLOCKS[{alias!r}]['LOCATION']"
        if len(targets) < 3 or len(targets) % 2 == 0:
            raise InvalidLockBackendError(
                f"{where} names {len(targets)} servers: a quorum needs three, five or another odd "
                "number of them. With one server use django_distlock.backends.redis.RedisBackend."
            )
        seen: dict[Hashable, str] = {}
        for target in targets:
            server = target.server
            if server in seen:
                raise InvalidLockBackendError(
                    f"{where} names one server twice: {seen[server]} and {target.shown}. Its "
                    "failure would cost two votes; name independent servers."
                )
            seen[server] = target.shown
        nodes = [Node(number, target) for number, target in enumerate(targets)]
        self.cluster = Cluster(alias, nodes, self.command_timeout)
        self._names = Names(PROTOCOL, round(conf.retention * 1000))
        self._pool = NodePool(self.cluster, self.command_timeout)
        self._async_pool = AsyncNodePool(self.cluster, self.command_timeout)
        # The nodes' clocks, less ours: what lets all draw the same token.
        self._ahead: float | None = None
        self._contended = waiting.Contended()
        self._local_waiters = waiting.LocalWaiters()

    # -- operations: what is done, whoever carries it out -----------------------------------------

    def _limit(self, ttl: float, limit: float | None = None) -> float:
        """Return the seconds that a round may take: a share of the ttl, so that most of it is left.

        Of a short ttl it is more, as the network is no faster; what is granted too late is refused
        by the layer above.
        """
        share = self.opts.get("NODE_TIMEOUT") or max(ttl / 20, 0.5)
        return float(
            min(share, self.command_timeout, self.command_timeout if limit is None else limit)
        )

    def _acquire(self, claim: Claim, limit: float) -> Operation[Grant | Refusal]:
        sent = time.monotonic() * 1e6
        proposal = 0 if self._ahead is None else round(sent + self._ahead)
        patience = self._limit(claim.ttl, max(limit, MIN_ATTEMPT_TIMEOUT))
        answer = yield from algorithm.acquire(
            self._names, claim, proposal, patience, self.cluster.shown, join=limit > 0
        )
        if isinstance(answer, Grant) and answer.fencing_token != proposal:
            # The nodes have not believed it: what they have drawn instead is what their clocks show
            # as long after the sending as the next question will take, too.
            self._ahead = answer.fencing_token - sent
        return answer

    def _renew(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        limit = self._limit(min(claim.ttl for claim in claims))
        return algorithm.renew(self._names, claims, limit, self.cluster.shown)

    def _release(self, claim: Claim) -> Operation[bool]:
        limit = self._limit(claim.ttl)
        freed = yield from algorithm.release(self._names, claim, limit, self.cluster.shown)
        if freed.waited_for:
            self._contended.add(claim.key)
        return freed.ours

    def _look(self, name: str) -> Operation[list[LockInfo]]:
        limit = self._limit(self.conf.ttl)
        return inspect.look(self._names, self.key(name), limit, self.cluster.shown)

    def _sweep(self, policy: CleanPolicy, cursor: str) -> Operation[Cleaned]:
        return inspect.clean(self._names, policy, cursor, self.command_timeout, self.cluster.shown)

    # -- primitives -------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return self._pool.run(self._acquire(claim, limit))

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return await self._async_pool.run(self._acquire(claim, limit))

    def renew(self, claim: Claim) -> bool:
        return self.renew_many([claim])[0]

    async def arenew(self, claim: Claim) -> bool:
        return (await self._async_pool.run(self._renew([claim])))[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for start in range(0, len(claims), BATCH):
            done += self._pool.run(self._renew(claims[start : start + BATCH]))
        return done

    async def arenew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for start in range(0, len(claims), BATCH):
            done += await self._async_pool.run(self._renew(claims[start : start + BATCH]))
        return done

    def release(self, claim: Claim) -> bool:
        return self._pool.run(self._release(claim))

    async def arelease(self, claim: Claim) -> bool:
        return await self._async_pool.run(self._release(claim))

    def inspect(self, name: str) -> LockInfo | None:
        return next(iter(self.holders(name)), None)

    async def ainspect(self, name: str) -> LockInfo | None:
        return next(iter(await self.aholders(name)), None)

    def holders(self, name: str) -> list[LockInfo]:
        return self._pool.run(self._look(name))

    async def aholders(self, name: str) -> list[LockInfo]:
        return await self._async_pool.run(self._look(name))

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        after: str = "-"
        while after:
            operation = inspect.page(self._names, after, self.command_timeout, self.cluster.shown)
            after, found = self._pool.run(operation)
            for key, info in found:
                # The servers may be those of aliases with other PREFIXes: the digest tells whose.
                ours = self._names.lock(key_of(self.conf.prefix, info.name))
                if info.name.startswith(prefix) and key.decode() == ours:
                    yield info

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        return self._pool.run(self._sweep(policy, cursor))

    async def aclean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        return await self._async_pool.run(self._sweep(policy, cursor))

    # -- waiting ----------------------------------------------------------------------------------

    def is_contended(self, claim: Claim) -> bool:
        """Return whether we have just released it, and woken another."""
        return claim.key in self._contended

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Block on one node until a release leaves a hint there."""
        if self._contended.take(claim.key):
            time.sleep(min(limit, waiting.MAKE_WAY))
            return True
        with self._local_waiters.joined(claim.key) as count:
            return self._pool.wait(waiting.turn(self._names.lock(claim.key), limit, left, count))

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        if self._contended.take(claim.key):
            await asyncio.sleep(min(limit, waiting.MAKE_WAY))
            return True
        with self._local_waiters.joined(claim.key) as count:
            turn = waiting.turn(self._names.lock(claim.key), limit, left, count)
            return await self._async_pool.wait(turn)

    # -- for the layers above ---------------------------------------------------------------------

    def remedy(self, error: Exception) -> str:
        return "Look at the servers that did not answer; a majority of them has to"

    def check(self) -> list[CheckMessage]:
        return check_ignored(self.alias, [node.target for node in self.cluster.nodes])

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, [node.target for node in self.cluster.nodes])

    def cleaned_with(self) -> Hashable:
        targets = [node.target for node in self.cluster.nodes]
        return ("redlock", frozenset((each.server, each.facts.get("db") or 0) for each in targets))

    def close_idle(self) -> None:
        """Close the connections that no thread or task uses now."""
        self._pool.close_idle()
        self._async_pool.close_idle()

    def close(self) -> None:
        super().close()
        self.cluster.close()
        self._pool.close()
        self._async_pool.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._local_waiters = waiting.LocalWaiters()
        self.cluster.forget_parent()
        self._pool.forget_parent()
