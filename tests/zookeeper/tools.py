"""What the tests of the zookeeper backend share."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from django_distlock import locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.backends.zookeeper.requests import kinds
from django_distlock.backends.zookeeper.steps import Talk
from django_distlock.conf import parse
from django_distlock.values import Claim, Grant

__all__ = ["Opener", "ask", "claim", "granted", "line", "opener", "started", "until"]

BACKEND = "django_distlock.backends.zookeeper.ZooKeeperBackend"
Opener: TypeAlias = Callable[..., ZooKeeperBackend]

_numbers = itertools.count()


@contextmanager
def opener() -> Iterator[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    made: list[str] = []

    def make(location: Any, *, prefix: str = "", session: float = 4.0, **opts: Any) -> Any:
        alias = f"zookeeper-{next(_numbers)}"
        opts = {"SESSION_TIMEOUT": session, **opts}
        conf = {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}
        locks[alias] = ZooKeeperBackend(alias, parse(alias, conf))
        made.append(alias)
        return locks[alias]

    try:
        yield make
    finally:
        for alias in made:
            del locks[alias]


def claim(backend: BaseLockBackend, name: str, ttl: float = 20.0) -> Claim:
    """Return a claim by a new owner."""
    return Claim(name, backend.key(name), secrets.token_hex(16), ttl)


def granted(backend: ZooKeeperBackend, claim: Claim, limit: float = 1.0) -> int:
    """Take what must be there to be had, and return the token."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Grant), answer
    return answer.fencing_token


def ask(backend: ZooKeeperBackend, kind: str, *words: Any) -> Any:
    """Ask the servers something, by the backend's own session; errors are returned."""

    def talk() -> Talk[Any]:
        (answer,) = yield [getattr(kinds(), kind)(*words)]
        return answer

    return backend._run(talk, 10.0)


def line(backend: ZooKeeperBackend, name: str) -> list[str]:
    """Return the names of the nodes that stand in a lock's queue."""
    answer = ask(backend, "GetChildren", f"{backend.facts.base}/{backend.key(name)}", None)
    return [] if isinstance(answer, Exception) else sorted(answer)


def until(condition: Callable[[], object], within: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come so"
        time.sleep(0.01)


def started(work: Callable[[], Any]) -> threading.Thread:
    """Begin work on a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
