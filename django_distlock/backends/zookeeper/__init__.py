"""Locks in ZooKeeper: ephemeral nodes in the order of their coming, each watching the last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, TypeVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.values import Claim, Grant, Refusal
from ..base import BaseLockBackend
from . import checks, errors, options
from .answers import Bell, Gate
from .inspect import Looking
from .keeper import Keeper
from .places import Place, Places
from .session import Session, is_cut
from .steps import PRESENCE, Steps, Talk

__all__ = ["ZooKeeperBackend"]

T = TypeVar("T")


class ZooKeeperBackend(Looking):
    """Locks on a cluster of ZooKeeper servers, first come first served.

    LOCATION names the servers: ``"host:2181,host:2181"`` or a list, with a chroot such as
    ``/shop`` at the end if there is one. OPTIONS: ``SESSION_TIMEOUT``, the seconds (10) for which
    the servers keep the locks of a process of which they hear nothing; ``COMMAND_TIMEOUT``, the
    seconds (5) after which a request without an answer counts as failed; ``CHROOT``; ``AUTH``, a
    list of (scheme, credential), as ``("digest", "user:word")``; ``SASL``, a dict for kazoo;
    ``ACL``, ``"creator"`` (the default with AUTH or SASL) or ``"open"``; ``TLS``, a dict of CA,
    CERT, KEY, KEY_PASSWORD, VERIFY and CHECK_HOSTNAME.
    """

    queues = fair = notifies = counts_waiters = cleans = native_async = True
    # A node is of the session that made it, and so of one process.
    transferable = False
    # Whoever does not wait at all asks once, and does not queue.
    min_attempt_timeout = 0.0
    poll: ClassVar[tuple[float, float]] = (0.02, 0.1)
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        options.require_kazoo(alias)
        from kazoo import exceptions as kinds
        from kazoo.handlers.threading import KazooTimeoutError

        self._cut_off = (kinds.ConnectionLoss, kinds.SessionExpiredError, errors.LeftOutError)
        self.store_errors = (
            errors.NoAnswerError,
            errors.NotLetInError,
            kinds.KazooException,
            KazooTimeoutError,
            OSError,
        )
        self.facts = options.facts_of(alias, conf, self.opts)
        self._begin()

    def _begin(self) -> None:
        self._places = Places()
        self._keeper = Keeper(
            self.alias, self.facts.base, self.clock, self._places, self.notice_losses
        )
        self._session = Session(self.alias, self.facts, self.clock, self._keeper.wake)
        self._keeper.session = self._session
        self._steps = Steps(self.alias, self.facts, self.clock, self._session, self._places)

    # -- carrying operations out -----------------------------------------------------------------

    def _run(self, begin: Callable[[], Talk[T]], limit: float) -> T:
        """Carry an operation out, again when the connection was lost, within ``limit`` seconds."""
        end = self.clock() + limit
        while True:
            talk = begin()
            try:
                requests = next(talk)
                while True:
                    left = end - self.clock()
                    if self._places.doomed:
                        self._keeper.remove()
                    try:
                        answers = self._session.ask(requests, left)
                    except Exception as error:  # noqa: BLE001 - the operation may have to tidy up
                        requests = talk.throw(error)
                    else:
                        requests = talk.send(answers)
            except StopIteration as stop:
                result: T = stop.value
                return result
            except self._cut_off:
                if self.clock() >= end:
                    raise

    async def _arun(self, begin: Callable[[], Talk[T]], limit: float) -> T:
        """Carry an operation out as `_run`, on the event loop."""
        end = self.clock() + limit
        while True:
            talk = begin()
            try:
                requests = next(talk)
                while True:
                    left = end - self.clock()
                    if self._places.doomed:
                        self._keeper.remove()
                    try:
                        answers = await self._session.aask(requests, left)
                    except Exception as error:  # noqa: BLE001 - the operation may have to tidy up
                        requests = talk.throw(error)
                    else:
                        requests = talk.send(answers)
            except StopIteration as stop:
                result: T = stop.value
                return result
            except self._cut_off:
                if self.clock() >= end:
                    raise

    # -- primitives ------------------------------------------------------------------------------

    def _patience(self, limit: float) -> float:
        return min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, and with a ``limit`` above 0 stand in the queue when refused."""
        answer = self._run(
            lambda: self._steps.acquire(claim, join=limit > 0), self._patience(limit)
        )
        self._kept(claim)
        return answer

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt as `try_acquire`, on the event loop."""
        answer = await self._arun(
            lambda: self._steps.acquire(claim, join=limit > 0), self._patience(limit)
        )
        self._kept(claim)
        return answer

    def _kept(self, claim: Claim) -> None:
        """Have the keeper see to a place that is due before what it waits for."""
        place = self._places.get(claim.owner)
        if place is not None and self._keeper.sleeps_past(place.due):
            self._keeper.wake()

    def renew(self, claim: Claim) -> bool:
        return self.renew_many([claim])[0]

    async def arenew(self, claim: Claim) -> bool:
        """Renew as `renew`, on the event loop."""
        answers = await self._arun(lambda: self._steps.renew([claim]), self.command_timeout)
        self._kept(claim)
        return answers[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Ask for all nodes at once, and note that they are kept for another ttl."""
        if not claims:
            return []
        answers = self._run(lambda: self._steps.renew(claims), self.command_timeout)
        for claim in claims:
            self._kept(claim)
        return answers

    def release(self, claim: Claim) -> bool:
        return self._run(lambda: self._steps.release(claim), self.command_timeout)

    async def arelease(self, claim: Claim) -> bool:
        """Release as `release`, on the event loop."""
        return await self._arun(lambda: self._steps.release(claim), self.command_timeout)

    # -- waiting ---------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused stands in the queue."""
        return self._places.get(claim.owner) is not None

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait until the node before ours is gone."""
        place = self._places.get(claim.owner)
        if place is None or place.granted or not place.node:
            return False
        end = self.clock() + limit
        self._places.lasts(place, end + PRESENCE)
        if self._ready(place):
            return True
        if not place.watched:
            self._run(lambda: self._steps.watch(place), self._patience(limit))
        gate = Gate()
        place.waker = gate.open
        try:
            if not self._ready(place):
                gate.wait(end - self.clock())
        finally:
            place.waker = None
        return True

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait as `queue`, on the event loop."""
        place = self._places.get(claim.owner)
        if place is None or place.granted or not place.node:
            return False
        end = self.clock() + limit
        self._places.lasts(place, end + PRESENCE)
        if self._ready(place):
            return True
        if not place.watched:
            await self._arun(lambda: self._steps.watch(place), self._patience(limit))
        bell = Bell()
        place.waker = bell.open
        try:
            if not self._ready(place):
                await bell.wait(end - self.clock())
        finally:
            place.waker = None
        return True

    @staticmethod
    def _ready(place: Place) -> bool:
        return place.stale or not place.ahead

    # -- for the layers above --------------------------------------------------------------------

    def sure_until(self, claim: Claim, *, foreseen: bool = False) -> float | None:
        """Return until when the servers are sure to keep the session by which a claim is held."""
        place = self._places.get(claim.owner)
        if place is None or not place.granted or (foreseen and self._session.up):
            return None
        return float("-inf") if place.lost else self._session.sure_until(place.session)

    def max_ttl(self, ttl: float) -> float:
        """Return how long a vanished holder keeps its lock: its ttl, or its session if longer.

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
        if not self._places:
            self._session.close()

    def forget_parent(self) -> None:
        super().forget_parent()
        self._session.forget_parent()
        self._begin()
