"""Asking every store at once: one that hangs or is down hides none of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from django.db import connections

from ..backends.base import BaseLockBackend
from ..exceptions import LockError
from ..values import LockInfo
from ..worker import close_connections

__all__ = ["LIMIT", "Answer", "Seen", "ask", "look"]

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
    error: str | None = None


def look(backends: Mapping[str, BaseLockBackend], prefix: str, limit: float) -> list[Seen]:
    """Return what is held in each store, in the order of ``backends``, as `ask` asks them."""

    def held(backend: BaseLockBackend) -> list[LockInfo]:
        return sorted(backend.held(prefix), key=lambda info: (info.acquired_at, info.name))

    return [
        Seen(alias, answer.value or [], answer.error)
        for alias, answer in ask(backends, held, limit).items()
    ]


def ask(
    backends: Mapping[str, BaseLockBackend],
    question: Callable[[BaseLockBackend], T],
    limit: float,
) -> dict[str, Answer[T]]:
    """Return the answer of each store, in the order of ``backends``.

    Each store is asked by a thread of its own and has ``limit`` seconds for its answer. Who is late
    is not waited for, but goes on.
    """
    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        # In a TestCase's transaction, say, which another thread would not see into.
        return {alias: _answer(backend, question) for alias, backend in backends.items()}
    answers: dict[str, Answer[T]] = {}

    def work(alias: str, backend: BaseLockBackend) -> None:
        try:
            answers[alias] = _answer(backend, question)
        finally:
            backend.close_thread()
            close_connections()

    threads = [
        threading.Thread(target=work, args=each, name=f"distlock-look-{each[0]}", daemon=True)
        for each in backends.items()
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late: Answer[T] = Answer(error=f"The store did not answer within {limit:g} s")
    return {alias: answers.get(alias) or late for alias in backends}


def _answer(backend: BaseLockBackend, question: Callable[[BaseLockBackend], T]) -> Answer[T]:
    try:
        return Answer(question(backend))
    except LockError as error:
        return Answer(error=str(error), cause=error)
