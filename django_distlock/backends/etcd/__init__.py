"""Locks in etcd: one key a contender, served in order, on leases that end with their process."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT, Flow, Step
from ...core.values import Claim, Grant, LockInfo, Refusal
from ...http import Http, HttpError, require_httptools
from ..flows import FlowBackend, Operation
from . import checks, errors, inspect, options
from .algorithm import BATCH, EtcdAlgorithm
from .client import EtcdClient, ask_all
from .entries import EtcdEntry
from .errors import EtcdError
from .leases import lifetime
from .protocol import Question
from .waiting import Handed, wait_turn

__all__ = ["EtcdBackend"]

WAITING = 200
"""Watches that a process has open at most; further waiters ask now and then."""

LEAST_TURN = 0.05


class EtcdBackend(FlowBackend):
    """Locks in etcd 3.4 or newer, asked by its JSON gateway.

    LOCATION is a URL or a list of those of the members of one cluster. OPTIONS: ``USER`` and
    ``PASSWORD``, ``CA_FILE``, ``CERT_FILE`` and ``KEY_FILE`` for https, ``ROOT``: what the keys
    begin with ("distlock"), and ``COMMAND_TIMEOUT``.
    """

    batch = BATCH
    at_once = 100  # transactions in one, which may ask 128 things, those inside included
    fair = True
    queues = True
    notifies = True
    counts_waiters = True
    supports_shared = supports_limit = True
    store_errors = (EtcdError, HttpError)
    answer_error = EtcdError
    options: ClassVar[OptionSpec] = {**FlowBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        require_httptools(alias, "etcd")
        self.located = options.locate(alias, conf, self.opts)
        servers = self.located.endpoints
        http = Http(servers, tls=self.located.tls, waiting=WAITING)
        self._client = EtcdClient(
            http, servers, self.opts.get("USER", ""), self.opts.get("PASSWORD", "")
        )
        self._algorithm = EtcdAlgorithm(self.located.root, lambda: self.clock())

    # -- operations ----------------------------------------------------------------------------

    def carry(self, request: Question | Step, ends: float) -> Flow[Any]:
        if isinstance(request, Question):
            return (yield from self._client.attempts(request, ends))
        return (yield from super().carry(request, ends))

    def acquire_flow(self, claim: Claim, *, join: bool) -> Operation[Grant | Refusal]:
        return self._algorithm.acquire(claim, wait=join)

    def renew_flow(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        return self._algorithm.renew(claims)

    def release_flow(self, claim: Claim) -> Operation[bool]:
        return self._algorithm.release(claim)

    def ask_flow(self, requests: list[Question]) -> Operation[list[Any]]:
        return ask_all(requests, super().ask_flow)

    def holders_flow(self, name: str) -> Operation[list[LockInfo]]:
        return inspect.look(self.located.root, self.key(name))

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        after, revision, more, ends = "", "0", True, inspect.ENDS
        while more:
            begin = partial(inspect.page, self.located.root, after, revision, ends)
            found, after, revision = self.do(begin, each=True)
            ends = max(0, ends - len(found))
            yield from (info for info in found if info.name.startswith(prefix))
            more = bool(after)

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused queues."""
        return self._algorithm.entries.get(claim.owner) is not None

    def queue_flow(self, claim: Claim, limit: float, left: float | None) -> Operation[bool | Grant]:
        """Wait until the one ahead has gone, or has left us its slot."""
        entry = self._algorithm.entries.get(claim.owner)
        if entry is None or not entry.ahead:
            return False
        ends = self._until(claim, entry, limit)
        patience = self.command_timeout if left is None else self._patience(left)
        told = yield from wait_turn(self._client, entry, lambda: ends - self.clock(), patience)
        if isinstance(told, Handed):
            return (yield from self._algorithm.handed(claim, entry, told)) or True
        return told

    def _until(self, claim: Claim, entry: EtcdEntry, limit: float) -> float:
        """Return until when to wait: no longer than the lease has a whole ttl before it."""
        now = self.clock()
        spare = entry.lease.until - claim.ttl - now
        return now + min(limit, max(spare, LEAST_TURN))

    # -- for the layers above ----------------------------------------------------------------------

    def max_ttl(self, ttl: float) -> float:
        """Return for how long etcd keeps the lock of a crashed holder.

        A lease is made for a quarter longer than the ttl, at most five seconds; the server raises
        what is shorter than its least, 2 s by default.
        """
        return float(max(lifetime(ttl), self._algorithm.pool.least))

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
        """Close the connections that are not in use."""
        self._client.http.close_idle()

    def close(self) -> None:
        super().close()
        self._algorithm.entries.stop_watching()
        self.end_idle()
        self._client.http.close()

    def end_idle(self) -> None:
        with suppress(*self.store_errors):  # what is left ends by itself
            self.do(self._algorithm.pool.end, MIN_ATTEMPT_TIMEOUT)

    def forget_parent(self) -> None:
        super().forget_parent()
        self._algorithm.begin_anew()
