"""Locks in etcd: one key a contender, served in order, on leases that end with their process."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from typing import ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT
from ...core.values import Claim, Grant, LockInfo, Refusal
from ...http import Http, HttpError, require_h11
from ..base import BaseLockBackend
from . import checks, errors, inspect, options
from .asking import Asker
from .errors import EtcdError
from .leases import lifetime
from .places import Place
from .steps import BATCH, Steps
from .waiting import await_turn, wait_turn

__all__ = ["EtcdBackend"]

WAITING = 200
"""Watches that a process has open at most; who comes later asks now and then."""

LEAST_TURN = 0.05


class EtcdBackend(BaseLockBackend):
    """Locks in etcd 3.4 or newer, asked by its JSON gateway.

    LOCATION is a URL or a list of those of the members of one cluster. OPTIONS: ``USER`` and
    ``PASSWORD``, ``CA_FILE``, ``CERT_FILE`` and ``KEY_FILE`` for https, ``ROOT``: what the keys
    begin with ("distlock"), and ``COMMAND_TIMEOUT``.
    """

    native_async = True
    fair = True
    queues = True
    notifies = True
    counts_waiters = True
    # Whoever does not wait at all asks once, and gets no place in the line.
    min_attempt_timeout = 0.0
    store_errors = (EtcdError, HttpError)
    options: ClassVar[OptionSpec] = {**BaseLockBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        require_h11(alias, "etcd")
        self.located = options.locate(alias, conf, self.opts)
        servers = self.located.endpoints
        http = Http(servers, tls=self.located.tls, waiting=WAITING)
        self._asker = Asker(http, servers, self.opts.get("USER", ""), self.opts.get("PASSWORD", ""))
        self._steps = Steps(self.located.root, lambda: self.clock())

    # -- primitives --------------------------------------------------------------------------------

    def _patience(self, limit: float) -> float:
        """Return how long an attempt may take, with all members that it goes to."""
        return min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        steps = self._steps.acquire(claim, wait=limit > 0)
        return self._asker.run(steps, self._patience(limit))

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        steps = self._steps.acquire(claim, wait=limit > 0)
        return await self._asker.arun(steps, self._patience(limit))

    def renew(self, claim: Claim) -> bool:
        return self.renew_many([claim])[0]

    async def arenew(self, claim: Claim) -> bool:
        return (await self.arenew_many([claim]))[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for start in range(0, len(claims), BATCH):
            steps = self._steps.renew(claims[start : start + BATCH])
            done += self._asker.run(steps, self.command_timeout)
        return done

    async def arenew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for start in range(0, len(claims), BATCH):
            steps = self._steps.renew(claims[start : start + BATCH])
            done += await self._asker.arun(steps, self.command_timeout)
        return done

    def release(self, claim: Claim) -> bool:
        return self._asker.run(self._steps.release(claim), self.command_timeout)

    async def arelease(self, claim: Claim) -> bool:
        return await self._asker.arun(self._steps.release(claim), self.command_timeout)

    def inspect(self, name: str) -> LockInfo | None:
        return self._asker.run(
            inspect.look(self.located.root, self.key(name)), self.command_timeout
        )

    async def ainspect(self, name: str) -> LockInfo | None:
        return await self._asker.arun(
            inspect.look(self.located.root, self.key(name)), self.command_timeout
        )

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        after, revision, more, ends = "", "0", True, inspect.ENDS
        while more:
            steps = inspect.page(self.located.root, after, revision, ends)
            found, after, revision = self._asker.run(steps, self.command_timeout)
            ends = max(0, ends - len(found))
            yield from (info for info in found if info.name.startswith(prefix))
            more = bool(after)

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused stands in the line."""
        return self._steps.places.get(claim.owner) is not None

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait until the one ahead has gone."""
        place = self._steps.places.get(claim.owner)
        if place is None or not place.ahead:
            return False
        ends = self._turn(claim, place, limit)
        patience = self._opening(left)
        return wait_turn(self._asker, place, lambda: ends - self.clock(), patience)

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool:
        """Wait as `queue`, on the event loop."""
        place = self._steps.places.get(claim.owner)
        if place is None or not place.ahead:
            return False
        ends = self._turn(claim, place, limit)
        patience = self._opening(left)
        return await await_turn(self._asker, place, lambda: ends - self.clock(), patience)

    def _turn(self, claim: Claim, place: Place, limit: float) -> float:
        """Return until when to wait: no longer than the lease has a whole ttl before it."""
        now = self.clock()
        spare = place.lease.until - claim.ttl - now
        return now + min(limit, max(spare, LEAST_TURN))

    def _opening(self, left: float | None) -> float:
        return self.command_timeout if left is None else self._patience(left)

    # -- for the layers above ----------------------------------------------------------------------

    def max_ttl(self, ttl: float) -> float:
        """Return for how long etcd keeps the lock of a holder who has vanished.

        A lease is made for a quarter longer than the ttl, at most five seconds; the server raises
        what is shorter than its least, 2 s by default.
        """
        return float(max(lifetime(ttl), self._steps.pool.least))

    def is_passing(self, error: Exception) -> bool:
        """Return whether another member may answer in a moment."""
        passes = isinstance(error, HttpError) or (isinstance(error, EtcdError) and error.passes)
        return passes and len(self.located.endpoints) > 1

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self.located.shown)

    def check_deploy(self) -> list[CheckMessage]:
        return checks.check_deploy(self.alias, self.located, login="USER" in self.opts)

    def cleaned_with(self) -> Hashable:
        return ("etcd", frozenset(self.located.endpoints), self.located.root)

    def close_idle(self) -> None:
        """Close the connections that nobody uses now."""
        self._asker.http.close_idle()

    def close(self) -> None:
        super().close()
        self._steps.places.stop_watching()
        self.end_idle()
        self._asker.http.close()

    def end_idle(self) -> None:
        with suppress(*self.store_errors):  # what is left ends by itself
            self._asker.run(self._steps.pool.end(), MIN_ATTEMPT_TIMEOUT)

    def forget_parent(self) -> None:
        super().forget_parent()
        self._steps.begin_anew()
