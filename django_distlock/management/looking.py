"""Looking at every store at once: one that hangs or is down hides none of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import connections

from ..backends.base import BaseLockBackend
from ..exceptions import LockError
from ..values import LockInfo
from ..worker import close_connections

__all__ = ["Seen", "look"]


@dataclass(slots=True)
class Seen:
    """What a store said: the locks that are held in it, or why that is not known."""

    alias: str
    locks: list[LockInfo] = field(default_factory=list)
    error: str | None = None


def look(backends: Mapping[str, BaseLockBackend], prefix: str, limit: float) -> list[Seen]:
    """Return what is held in each store, in the order of ``backends``.

    Each store is asked by a thread of its own and has ``limit`` seconds for its answer.
    """
    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        # In a TestCase's transaction, say, which another thread would not see into.
        return [_ask(alias, backend, prefix) for alias, backend in backends.items()]
    answers: dict[str, Seen] = {}

    def work(alias: str, backend: BaseLockBackend) -> None:
        try:
            answers[alias] = _ask(alias, backend, prefix)
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
    late = f"The store did not answer within {limit:g} s"
    return [answers.get(alias) or Seen(alias, error=late) for alias in backends]


def _ask(alias: str, backend: BaseLockBackend, prefix: str) -> Seen:
    try:
        locks = sorted(backend.held(prefix), key=lambda info: (info.acquired_at, info.name))
    except LockError as error:
        return Seen(alias, error=str(error))
    return Seen(alias, locks)
