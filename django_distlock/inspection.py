"""Asking every store at once: one that hangs or is down hides none of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .backends.base import BaseLockBackend
from .core import threads
from .core.fork import after_fork
from .core.values import LockInfo
from .core.worker import close_connections
from .exceptions import LockError
from .handler import locks

__all__ = ["LIMIT", "Answer", "Seen", "ask", "distinct", "look", "open_all", "round_trip"]

PROBE = "distlock: reachable?"
"""A name that no program locks, inspected to time a round trip."""


LIMIT = 5.0
"""Seconds that a store may take, unless it is said."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a store answered, or why there is no answer; the ``cause`` is none where it is late."""

    value: T | None = None
    error: str | None = None
    cause: LockError | None = None


@dataclass(slots=True)
class Seen:
    """What a store said: the locks that are held in it, or why that is not known."""

    alias: str
    locks: list[LockInfo] = field(default_factory=list)
    shows_holders: bool = True
    """Whether it can say what is held; else ``locks`` is empty, whatever is."""
    expired: list[LockInfo] = field(default_factory=list)
    """The leases that ran out and were not released, if they were asked for."""
    error: str | None = None
    round_trip: float | None = None
    """Seconds that the store took to answer one small question, if it was timed."""


def distinct(seen: Iterable[Seen]) -> Iterator[tuple[Seen, LockInfo]]:
    """Yield each held lock once, though aliases that are the same store show it more than once."""
    shown = set()
    for each in seen:
        for info in each.locks:
            # Two grants never have the same owner.
            grant = (info.name, info.fencing_token, info.owner or each.alias)
            if grant not in shown:
                shown.add(grant)
                yield each, info


def open_all() -> tuple[dict[str, BaseLockBackend], dict[str, str]]:
    """Return the backends of all aliases, and of those set up wrongly what is wrong.

    Raise InvalidLockBackendError when DISTLOCKS itself is.
    """
    opened, broken = {}, {}
    for alias in locks:
        try:
            opened[alias] = locks[alias]
        except ImproperlyConfigured as error:
            broken[alias] = str(error)
    return opened, broken


class _Asked(Generic[T]):
    """One question to one store, by a thread of its own."""

    def __init__(self, backend: BaseLockBackend, question: Callable[[BaseLockBackend], T]) -> None:
        self.begun = time.monotonic()
        self._answer: Answer[T] | None = None
        self._done = threads.Event()
        self._what = (backend, question)
        name = f"distlock-look-{backend.alias}"
        threads.start(threading.Thread(target=self._run, name=name, daemon=True))

    @property
    def open(self) -> bool:
        """Whether the store has not answered yet."""
        return not self._done.is_set()

    def result(self, end: float) -> Answer[T] | None:
        """Return the answer, or None when there is none by ``end``."""
        if not self._done.wait(max(0.0, end - time.monotonic())):
            return None
        # Else its thread has died of something unheard of, and said so by itself.
        return self._answer or Answer(error="Asking failed; see the log of the process")

    def _run(self) -> None:
        backend, question = self._what
        try:
            self._answer = _answer(backend, question)
        finally:
            backend.close_thread()
            close_connections()
            self._done.set()


_late: dict[BaseLockBackend, _Asked[Seen]] = {}
"""The inspection of each store that took longer than its caller could wait."""

after_fork(_late.clear)  # their threads are the parent's


def look(
    backends: Mapping[str, BaseLockBackend],
    prefix: str,
    limit: float,
    *,
    timed: bool = False,
    expired: bool = False,
    patient: bool = True,
) -> list[Seen]:
    """Return what is held in each store, in the order of ``backends``, as `ask` asks them.

    With ``timed`` a round trip is timed beside; with ``expired`` leases that ran out are looked for
    as well. Who looks again and again is not ``patient``: a store that hung the last time, and
    still does, is not asked another time, and not waited for.
    """

    def see(backend: BaseLockBackend) -> Seen:
        took = round_trip(backend) if timed else None
        if not backend.shows_holders:
            if not timed:
                backend.call("inspect", PROBE)  # to see whether it answers
            return Seen(backend.alias, shows_holders=False, round_trip=took)
        held = list(backend.held(prefix))
        found = list(backend.expired(prefix)) if expired else []
        return Seen(backend.alias, held, expired=found, round_trip=took)

    late = {
        alias: _late[backend]
        for alias, backend in backends.items()
        if not patient and backend in _late and _late[backend].open
    }
    others = {alias: backend for alias, backend in backends.items() if alias not in late}
    answers = ask(others, see, limit, late=_late)
    seen = {alias: each.value or Seen(alias, error=each.error) for alias, each in answers.items()}
    for alias, asked in late.items():
        passed = time.monotonic() - asked.begun
        seen[alias] = Seen(alias, error=f"The store has not answered for {passed:.0f} s")
    return [seen[alias] for alias in backends]


def ask(
    backends: Mapping[str, BaseLockBackend],
    question: Callable[[BaseLockBackend], T],
    limit: float,
    *,
    late: dict[BaseLockBackend, _Asked[T]] | None = None,
) -> dict[str, Answer[T]]:
    """Return the answer of each store, in the order of ``backends``.

    Each store is asked by a thread of its own and has ``limit`` seconds for its answer. A late
    one is not waited for, but goes on, and is noted in ``late``.
    """
    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        # In a TestCase's transaction, say, which another thread would not see into.
        return {alias: _answer(backend, question) for alias, backend in backends.items()}
    asked = {alias: _Asked(backend, question) for alias, backend in backends.items()}
    end = time.monotonic() + limit
    answers: dict[str, Answer[T]] = {}
    for alias, each in asked.items():
        answer = each.result(end)
        if late is not None and answer is None:
            late[backends[alias]] = each
        elif late is not None:
            late.pop(backends[alias], None)
        answers[alias] = answer or Answer(error=f"The store did not answer within {limit:g} s")
    return answers


def _answer(backend: BaseLockBackend, question: Callable[[BaseLockBackend], T]) -> Answer[T]:
    try:
        return Answer(question(backend))
    except LockError as error:
        return Answer(error=str(error), cause=error)


def round_trip(backend: BaseLockBackend) -> float:
    """Return the seconds that a store takes to answer one small question."""
    backend.call("inspect", PROBE)  # which may have to connect first
    begun = time.monotonic()
    backend.call("inspect", PROBE)
    return time.monotonic() - begun
