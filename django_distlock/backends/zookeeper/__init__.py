"""Locks in ZooKeeper: ephemeral nodes in the order of their coming, each watching the last."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import Flow
from ...core.threads import Event
from ...core.values import Claim, Grant, Refusal
from ..flows import FlowBackend, Operation, Standby
from . import checks, errors, options
from .algorithm import PRESENCE, Talk, ZooKeeperAlgorithm
from .entries import ZooKeeperEntries, ZooKeeperEntry
from .inspect import ZooKeeperInspection
from .keeper import Keeper
from .session import ZooKeeperSession, is_cut

__all__ = ["ZooKeeperBackend"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Send requests together, and return their answers."""

    interruptible: ClassVar[bool] = True

    session: ZooKeeperSession
    requests: Sequence[Any]
    ends: float

    def do(self) -> list[Any]:
        return self.session.ask(self.requests, self.ends - time.monotonic())

    async def ado(self) -> list[Any]:
        return await self.session.aask(self.requests, self.ends - time.monotonic())


class ZooKeeperBackend(ZooKeeperInspection):
    """Locks on a cluster of ZooKeeper servers, first come first served.

    LOCATION names the servers: ``"host:2181,host:2181"`` or a list, with a chroot such as
    ``/shop`` at the end if there is one. OPTIONS: ``SESSION_TIMEOUT``, the seconds (10) for which
    the servers keep the locks of a process of which they hear nothing; ``COMMAND_TIMEOUT``, the
    seconds (5) after which a request without an answer counts as failed; ``CHROOT``; ``AUTH``, a
    list of (scheme, credential), as ``("digest", "user:word")``; ``SASL``, a dict for kazoo;
    ``ACL``, ``"creator"`` (the default with AUTH or SASL) or ``"open"``; ``TLS``, a dict of CA,
    CERT, KEY, KEY_PASSWORD, VERIFY and CHECK_HOSTNAME.
    """

    queues = fair = notifies = counts_waiters = cleans = True
    supports_shared = supports_limit = True
    # A node is of the session that made it, and so of one process.
    transferable = False
    at_once = 150  # of which each asks for three things
    poll: ClassVar[tuple[float, float]] = (0.02, 0.1)
    options: ClassVar[OptionSpec] = {**FlowBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        options.require_kazoo(alias)
        from kazoo import exceptions as kinds
        from kazoo.handlers.threading import KazooTimeoutError

        self.begins_again = (kinds.ConnectionLoss, kinds.SessionExpiredError, errors.LeftOutError)
        self.store_errors = (
            errors.NoAnswerError,
            errors.NotLetInError,
            kinds.KazooException,
            KazooTimeoutError,
            OSError,
        )
        self.answer_error = kinds.MarshallingError
        self.facts = options.facts_of(alias, conf, self.opts)
        self._begin()

    def _begin(self) -> None:
        self._entries = ZooKeeperEntries()
        self._keeper = Keeper(
            self.alias, self.facts.base, self.clock, self._entries, self.notice_losses
        )
        self._session = ZooKeeperSession(self.alias, self.facts, self.clock, self._keeper.wake)
        self._keeper.session = self._session
        self._algorithm = ZooKeeperAlgorithm(
            self.alias, self.facts, self.clock, self._session, self._entries
        )

    # -- operations ------------------------------------------------------------------------------

    def carry(self, request: Any, ends: float) -> Flow[Any]:
        if not isinstance(request, list):
            return (yield from super().carry(request, ends))
        if self._entries.doomed:
            self._keeper.remove()
        return (yield Ask(self._session, request, ends))

    def acquire_flow(self, claim: Claim, *, join: bool) -> Operation[Grant | Refusal]:
        answer = yield from self._algorithm.acquire(claim, join=join)
        self._kept(claim)
        return answer

    def ask_flow(self, requests: list[list[Any]]) -> Talk[list[list[Any]]]:
        answers = iter((yield list(chain.from_iterable(requests))))
        return [list(islice(answers, len(each))) for each in requests]

    def _kept(self, claim: Claim) -> None:
        """Have the keeper see to an entry that is due before what it waits for."""
        entry = self._entries.get(claim.owner)
        if entry is not None and self._keeper.sleeps_past(entry.due):
            self._keeper.wake()

    def renew_flow(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        """Ask for all nodes at once, and note that they are kept for another ttl."""
        answers = yield from self._algorithm.renew(claims)
        for claim in claims:
            self._kept(claim)
        return answers

    def release_flow(self, claim: Claim) -> Operation[bool]:
        return self._algorithm.release(claim)

    # -- waiting ---------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused is in the queue."""
        return self._entries.get(claim.owner) is not None

    def queue_flow(self, claim: Claim, limit: float, left: float | None) -> Operation[bool]:
        """Wait until the node before ours is gone."""
        entry = self._entries.get(claim.owner)
        if entry is None or entry.granted or not entry.node:
            return False
        end = self.clock() + limit
        self._entries.lasts(entry, end + PRESENCE)
        if self._ready(entry):
            return True
        yield from self._algorithm.watch(entry)
        told = Event()
        entry.waker = told.set
        try:
            if not self._ready(entry):
                yield Standby(told, max(0.0, end - self.clock()))
        finally:
            entry.waker = None
        return True

    @staticmethod
    def _ready(entry: ZooKeeperEntry) -> bool:
        return entry.stale or not entry.ahead

    # -- for the layers above --------------------------------------------------------------------

    def sure_until(self, claim: Claim, *, foreseen: bool = False) -> float | None:
        """Return until when the servers are sure to keep the session by which a claim is held."""
        entry = self._entries.get(claim.owner)
        if entry is None or not entry.granted or (foreseen and self._session.up):
            return None
        return float("-inf") if entry.lost else self._session.sure_until(entry.session)

    def max_ttl(self, ttl: float) -> float:
        """Return how long a crashed holder keeps its lock: its ttl, or its session if longer.

        A session ends by up to a tick of the servers' clocks late, which is half of it at most.
        """
        return max(ttl, 1.5 * max(self.facts.timeout, self._session.timeout))

    def is_passing(self, error: Exception) -> bool:
        """Return whether another server of the cluster may answer in a moment."""
        return "," in self.facts.hosts and (
            isinstance(error, errors.NoAnswerError) or is_cut(error)
        )

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.facts.hosts)

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.facts, self._session)

    def cleaned_with(self) -> Hashable:
        hosts = frozenset(self.facts.hosts.split(","))
        return ("zookeeper", hosts, self.facts.base)

    def close(self) -> None:
        super().close()
        self._keeper.close()
        self._session.close()

    def end_idle(self) -> None:
        if not self._entries:
            self._session.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._session.forget_parent()
        self._begin()
