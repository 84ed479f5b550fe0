"""Aliases for the time of a test, claims for their primitives, and waiting for what comes soon."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from django_distlock import lock, locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.conf import parse
from django_distlock.core.values import Claim, Grant, HolderInfo, Refusal
from tests.backends.tools import elsewhere

__all__ = [
    "claim",
    "excludes",
    "granted",
    "limited",
    "opening",
    "refused",
    "slot",
    "soon",
    "started",
]

B = TypeVar("B", bound=BaseLockBackend)

_numbers = itertools.count()


@contextmanager
def opening(kind: type[B], settings: Callable[..., dict[str, Any]]) -> Iterator[Callable[..., B]]:
    """Give a function that opens aliases; all are closed at the end of the block.

    ``settings(alias, ...)`` returns the alias's entry in DISTLOCKS for what the function is given.
    """
    made: list[str] = []

    def make(*words: Any, **more: Any) -> B:
        alias = f"{kind.__name__.lower()}-{next(_numbers)}"
        backend = kind(alias, parse(alias, settings(alias, *words, **more)))
        locks[alias] = backend
        made.append(alias)
        return backend

    try:
        yield make
    finally:
        for alias in made:
            del locks[alias]


def claim(backend: BaseLockBackend, name: str, ttl: float = 20.0) -> Claim:
    """Return a claim by a new owner."""
    return Claim(name, backend.key(name), secrets.token_hex(16), ttl)


def limited(backend: BaseLockBackend, name: str, limit: int) -> Claim:
    """Return a claim of a slot by a new owner."""
    return claim(backend, name)._replace(limit=limit, note=HolderInfo(limit=limit).dumps())


def granted(backend: BaseLockBackend, claim: Claim, limit: float = 5.0) -> int:
    """Take what must be there to be had, and return the token."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Grant), answer
    return answer.fencing_token


def slot(backend: BaseLockBackend, mine: Claim) -> int:
    """Take a slot that must be there to be had, and return it."""
    answer = backend.try_acquire(mine, 5.0)
    assert isinstance(answer, Grant), answer
    assert answer.slot is not None
    return answer.slot


def refused(backend: BaseLockBackend, claim: Claim, limit: float = 1.0) -> Refusal:
    """Ask for what another holds."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Refusal), answer
    return answer


def started(work: Callable[[], Any]) -> threading.Thread:
    """Begin work on a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def excludes(backend: BaseLockBackend, name: str, **options: Any) -> None:
    """Hold a lock on this thread and in a task; assert that nobody else is granted it meanwhile."""
    holding = lock(name, using=backend.alias, **options)
    waiting = lock(name, using=backend.alias, wait=0.2)
    with holding:
        assert elsewhere(waiting.acquire) is None

    async def use() -> None:
        async with holding:
            assert await asyncio.create_task(waiting.aacquire()) is None

    asyncio.run(use())


def soon(condition: Callable[[], object], within: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, f"it did not become so in {within:g} s"
        time.sleep(0.01)
