"""Sessions of Consul, kept over many locks: whoever takes one need not make a session first."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ...core.clock import Clock
from ...http import HttpError, Request
from .api import Api, ConsulError, Talk, ask, checked

__all__ = ["ConsulSession", "ConsulSessions"]

STEPS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
SPARE: Final = 1.25  # a session outlives a new lease by this, so that not each one has to renew it
LONGEST: Final = 86_400.0
"""Seconds; Consul's longest TTL of a session."""


@dataclass(slots=True)
class ConsulSession:
    """A session of this process."""

    id: str
    ttl: float
    renewed: float
    """When it was last renewed, counted from before the request."""

    def lasts(self, seconds: float, now: float) -> bool:
        """Return whether Consul keeps it for so long, however long it was not renewed before."""
        return self.renewed + self.ttl >= now + seconds * 1.01 + 0.05


class ConsulSessions:
    """The sessions of one backend, one for all leases of about the same ttl.

    A session is renewed when it is needed and about to end, by whoever needs it. What it holds of
    leases whose time is over is freed before (``reap``): else the locks of a holder that has let
    go would live for as long as its process takes others.
    """

    def __init__(
        self,
        api: Api,
        body: Mapping[str, Any],
        least: float,
        clock: Clock,
        reap: Callable[[str], Talk[None]],
    ) -> None:
        self._api = api
        self._body = dict(body)
        self._begin()
        self._least = least
        self._clock = clock
        self._reap = reap
        self._by_ttl: dict[float, ConsulSession] = {}

    def _begin(self) -> None:
        # By its name a session is known to be ours whose making was not answered.
        self._body["Name"] = f"django-distlock {secrets.token_hex(8)}"
        self._doubtful = self._to_sweep = False

    def length(self, ttl: float) -> float:
        """Return the TTL of the session for leases of ``ttl`` seconds."""
        wanted = max(self._least, min(ttl * SPARE, LONGEST))
        power = 10.0 ** math.floor(math.log10(wanted))
        fitting = (step * scale for scale in (power, power * 10) for step in STEPS)
        return min(LONGEST, next(each for each in fitting if each >= wanted - 1e-9))

    def for_ttl(self, ttl: float) -> Talk[ConsulSession]:
        """Return a session that outlives a lease of ``ttl`` seconds that begins now."""
        length = self.length(ttl)
        session = self._by_ttl.get(length)
        if session is not None:
            if session.lasts(ttl, self._clock()) or (yield from self._renew(session)):
                return session
            self.forget(session.id)
        return (yield from self._make(length))

    def keep(self, id: str, ttl: float) -> Talk[bool | None]:
        """Have a session outlive a lease of ``ttl`` seconds that begins now.

        False when it is gone; None when it is not ours, or too short for that.
        """
        # Of a copy, as other threads make sessions meanwhile.
        session = next((each for each in list(self._by_ttl.values()) if each.id == id), None)
        if session is None or session.ttl < ttl * 1.05 + 0.1:
            return None
        if session.lasts(ttl, self._clock()) or (yield from self._renew(session)):
            return True
        self.forget(id)
        return False

    def forget(self, id: str) -> None:
        """Use a session no more, which is gone."""
        for length, session in list(self._by_ttl.items()):
            if session.id == id:
                del self._by_ttl[length]

    def forget_all(self) -> None:
        """Drop the sessions of the parent, in a forked child."""
        self._by_ttl = {}
        self._begin()

    def end(self, used: Callable[[str], bool]) -> Talk[None]:
        """End the sessions that hold nothing any more; the others end by their TTL."""
        sessions, self._by_ttl = list(self._by_ttl.values()), {}
        for session in sessions:
            if not used(session.id):
                yield from self._destroy(session.id)
        if self._doubtful:
            yield from self._sweep({session.id for session in sessions})

    # -- requests ----------------------------------------------------------------------------------

    def _make(self, length: float) -> Talk[ConsulSession]:
        asked = self._clock()
        body = self._body | {"TTL": f"{length:g}s"}
        request = Request("PUT", self._api.target("/v1/session/create"), json.dumps(body).encode())
        doubts: list[Exception] = []
        try:
            answer = checked((yield from ask(request, doubts)))
        finally:
            self._doubtful = self._doubtful or bool(doubts)
            self._to_sweep = self._to_sweep or bool(doubts)
        session = ConsulSession(str(UUID(answer.json()["ID"])), length, asked)
        kept = self._by_ttl.setdefault(length, session)
        if kept is not session:  # another was faster
            yield from self._destroy(session.id)
        if self._to_sweep:
            self._to_sweep = False
            yield from self._sweep({each.id for each in list(self._by_ttl.values())})
        return kept

    def _sweep(self, ours: Set[str]) -> Talk[None]:
        """End the sessions whose making was not answered."""
        request = Request("GET", self._api.target("/v1/session/list"))
        try:
            found = checked((yield from ask(request))).json()
        except (HttpError, ConsulError):
            return  # they end by their TTL
        for each in found or ():
            if each["Name"] == self._body["Name"] and each["ID"] not in ours:
                yield from self._destroy(each["ID"])

    def _renew(self, session: ConsulSession) -> Talk[bool]:
        yield from self._reap(session.id)
        asked = self._clock()
        request = Request("PUT", self._api.target(f"/v1/session/renew/{session.id}"))
        answer = checked((yield from ask(request)), allowed=(200, 404))
        if answer.status == 404:
            return False
        session.renewed = max(session.renewed, asked)
        return True

    def _destroy(self, id: str) -> Talk[None]:
        try:
            yield Request("PUT", self._api.target(f"/v1/session/destroy/{id}"))
        except (HttpError, ConsulError):
            return  # it ends by its TTL
