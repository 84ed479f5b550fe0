"""Locks in Consul: on sessions, with a queue of waiters, in a cluster that survives any server."""

from __future__ import annotations

import typing
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from django.core.checks import CheckMessage

from ...conf import AliasConf, OptionSpec
from ...core.flow import MIN_ATTEMPT_TIMEOUT, Flow
from ...core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from ...exceptions import UnsupportedOperationError
from ...http import (
    Ask,
    Http,
    HttpError,
    Request,
    endpoints_of,
    require_httptools,
    tls_of,
)
from ..flows import FlowBackend
from . import checks, errors, inspect, options
from .algorithm import ConsulAlgorithm
from .api import Api, ConsulError, Step, Talk
from .holds import Ways
from .records import Liveness, folder
from .sessions import ConsulSessions

__all__ = ["ConsulBackend", "Sequencer", "sequencer"]


@dataclass(frozen=True, slots=True)
class Sequencer:
    """By what the receiver of a request can ask Consul whether its sender holds the lock still.

    It reads ``key``: the lock is held as long as its LockIndex and its Session are these.
    """

    key: str
    lock_index: int
    session: str


class ConsulBackend(FlowBackend):
    """Locks in Consul's key-value store, each held by a session.

    LOCATION is the URL of an agent, by default ``"http://127.0.0.1:8500"``, or a list of them, of
    which the first that can be reached is asked. OPTIONS: ``COMMAND_TIMEOUT``; ``TOKEN``, an ACL
    token; ``DATACENTER``; ``ROOT``, what the keys begin with (``"distlock"``); ``LOCK_DELAY``, the
    seconds (15) for which Consul keeps a lock from everybody after its session has ended;
    ``BEHAVIOR``, what becomes of the key: ``"delete"``, or ``"release"``, by which the sequencer's
    LockIndex goes on rising; ``NODE``, ``NODE_CHECKS`` and ``SERVICE_CHECKS``, health checks by
    which a session ends, too (none); ``SESSION_TTL_MIN``, as the servers' session_ttl_min (10);
    ``CA_FILE``, ``CERT_FILE`` and ``KEY_FILE`` for TLS.
    """

    queues = fair = notifies = counts_waiters = cleans = True
    supports_shared = supports_limit = True
    poll = (0.02, 0.25)
    at_once = 64
    longest_ttl = options.LONGEST_TTL
    store_errors = (HttpError, ConsulError)
    answer_error = staticmethod(partial(ConsulError, 200))
    options: ClassVar[OptionSpec] = {**FlowBackend.options, **options.SPEC}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        super().__init__(alias, conf)
        require_httptools(alias, "consul")
        # Longer than a server without a leader keeps a request before it says so, 7 s.
        self.command_timeout = self.opts.get("COMMAND_TIMEOUT", 10.0)
        self._lock_delay: float = self.opts.get("LOCK_DELAY", options.LOCK_DELAY)
        location = options.DEFAULT_URL if conf.location is None else conf.location
        hint = "An ACL token is OPTIONS['TOKEN']"
        endpoints = endpoints_of(alias, location, options.PORT, "a Consul agent", hint)
        self._shown = ", ".join(map(str, endpoints))
        self._several = len(endpoints) > 1
        token = self.opts.get("TOKEN")
        self._http = Http(
            endpoints,
            headers={"X-Consul-Token": token} if token else {},
            tls=tls_of(alias, self.opts, endpoints),
        )
        self._folder = folder(self.opts.get("ROOT", "distlock"), conf.prefix)
        self._api = Api(self.opts.get("DATACENTER", ""))
        self._sessions = ConsulSessions(
            self._api,
            options.session_body(self.opts),
            self.opts.get("SESSION_TTL_MIN", options.LEAST_SESSION),
            self.clock,
            lambda id: self._algorithm.reap(id),
        )
        ways = Ways(keeps=self.opts.get("BEHAVIOR") == "release")
        if ways.keeps:
            self.at_once = 1  # an attempt has to know whether there is a key
        liveness = Liveness(self.clock)
        self._algorithm = ConsulAlgorithm(
            self._api, self._folder, ways, self._sessions, liveness, self.clock
        )

    # -- operations ------------------------------------------------------------------------------

    def carry(self, request: Step, ends: float) -> Flow[Any]:
        if isinstance(request, Request):
            return (yield Ask(self._http, request, ends))
        return (yield from super().carry(request, ends))

    def acquire_flow(self, claim: Claim, *, join: bool) -> Talk[Grant | Refusal]:
        return self._algorithm.acquire(claim, join)

    def acquire_many_flow(self, claims: Sequence[Claim]) -> Talk[list[Grant | None]]:
        """Attempt 16 in each transaction."""
        return self._algorithm.acquire_many(claims)

    def renew_flow(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Renew one, or 32 in each transaction."""
        if len(claims) == 1:
            return [(yield from self._algorithm.renew(claims[0]))]
        return (yield from self._algorithm.renew_many(claims))

    def release_flow(self, claim: Claim) -> Talk[bool]:
        return self._algorithm.release(claim)

    def release_many_flow(self, claims: Sequence[Claim]) -> Talk[list[bool]]:
        """Release 32 in each transaction."""
        return self._algorithm.release_many(claims)

    def withdraw_flow(self, claim: Claim) -> Talk[bool]:
        return self._algorithm.withdraw(claim)

    def holders_flow(self, name: str) -> Talk[list[LockInfo]]:
        return inspect.look(self._api, self._algorithm.queue, self._folder, self.key(name))

    def clean_flow(self, policy: CleanPolicy, cursor: str) -> Talk[Cleaned]:
        """Remove marks and keys that crashed processes left behind, and free locks' keys."""
        return inspect.clean(self._api, self._algorithm.queue, self._folder, policy, cursor)

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        for part in inspect.PARTS:
            states = self.do(partial(inspect.some_states, self._api, self._folder, part))
            for info in inspect.names_of(states, self._algorithm.queue):
                if info.name.startswith(prefix):
                    yield info

    # -- waiting -----------------------------------------------------------------------------------

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused queues."""
        return claim.owner in self._algorithm.queue.entries

    def queue_flow(self, claim: Claim, limit: float, left: float | None) -> Talk[bool]:
        """Wait until the one before us has gone."""
        try:
            return (yield from self._algorithm.wait(claim, limit))
        except (HttpError, ConsulError):
            return False  # the next attempt says what is the matter, if anything still is

    # -- for the layers above ----------------------------------------------------------------------

    def check(self) -> list[CheckMessage]:
        return checks.check(self.alias, self.conf, self.opts, self._lock_delay)

    def max_ttl(self, ttl: float) -> float:
        """Return how long a crashed holder's lock may be kept from claims that never read it.

        Consul ends a session after up to twice its TTL, and the lock-delay follows. A waiter
        that has watched the lock for its ttl acquires it then.
        """
        return 2 * self._sessions.length(ttl) + self._lock_delay

    def _sequencer(self, claim: Claim) -> Sequencer:
        # Only where keys are kept does their LockIndex go on rising.
        hold = self._algorithm.holds.get(claim.owner)
        if self.opts.get("BEHAVIOR") != "release" or hold is None:
            raise UnsupportedOperationError(
                "A sequencer is told from an older one by its LockIndex, which starts again when "
                "the key is deleted: set OPTIONS['BEHAVIOR'] to 'release', or compare fencing "
                "tokens",
                name=claim.name,
                alias=self.alias,
            )
        return Sequencer(hold.lock, hold.lock_index, hold.session)

    def is_conflict(self, error: Exception) -> bool:
        """Return whether a leader is being elected, or Consul asks for a moment."""
        return isinstance(error, ConsulError) and error.passing

    def is_passing(self, error: Exception) -> bool:
        """Return whether another of several agents may answer in a moment, or this one again.

        An agent turns a client away that has as many connections as it may have.
        """
        if not isinstance(error, HttpError):
            return False
        return self._several or (error.turned_away and self._http.answered)

    def remedy(self, error: Exception) -> str:
        return errors.remedy(error, self._shown)

    def cleaned_with(self) -> Hashable:
        return ("consul", self._shown, self._folder)

    def close_idle(self) -> None:
        """Close the connections that are not in use; later callers open theirs again."""
        self._http.close_idle()

    def close(self) -> None:
        super().close()
        self.end_idle()
        self._http.close()

    def end_idle(self) -> None:
        used = {hold.session for hold in self._algorithm.holds.values()}
        self.do(lambda: self._sessions.end(lambda id: id in used), MIN_ATTEMPT_TIMEOUT)

    def forget_parent(self) -> None:
        super().forget_parent()
        self._sessions.forget_all()
        self._algorithm.forget_all()


class HeldLease(typing.Protocol):
    """A `Lease`, as far as a store knows of it."""

    @property
    def name(self) -> str: ...
    @property
    def alias(self) -> str: ...

    _hold: Any

    def check(self) -> None: ...


def sequencer(lease: HeldLease) -> Sequencer:
    """Return what to send along, so that its receiver can ask Consul whether we hold the lock.

    Only with ``BEHAVIOR`` ``"release"``, where a free lock's key stays. Raises LeaseLostError for a
    lost lease, and UnsupportedOperationError for that of another backend, or of keys that do not
    stay.
    """
    lease.check()
    hold = lease._hold
    if not isinstance(hold.backend, ConsulBackend):
        raise UnsupportedOperationError(
            "Only Consul has sequencers: compare fencing tokens", name=lease.name, alias=lease.alias
        )
    return hold.backend._sequencer(hold.claim)
