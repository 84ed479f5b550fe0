"""What the tests of the redis backend share."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from django_distlock import locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.redis import RedisBackend
from django_distlock.conf import parse
from django_distlock.values import Claim, Grant
from tests.servers import Redis

__all__ = ["BACKEND", "Opener", "calls", "claim", "granted", "keys", "opener", "started"]

BACKEND = "django_distlock.backends.redis.RedisBackend"
Opener: TypeAlias = Callable[..., RedisBackend]

_numbers = itertools.count()


@contextmanager
def opener() -> Iterator[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    made: list[str] = []

    def make(location: Any, *, prefix: str = "", retention: float = 600, **opts: Any) -> Any:
        alias = f"redis-{next(_numbers)}"
        conf = {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}
        backend = RedisBackend(alias, parse(alias, conf | {"RETENTION": retention}))
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


def granted(backend: RedisBackend, claim: Claim, limit: float = 1.0) -> int:
    """Take what must be there to be had, and return the token."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Grant), answer
    return answer.fencing_token


def keys(server: Redis) -> list[str]:
    """Return every key of the server's first database."""
    return sorted(server.execute("KEYS", "*").split())


def calls(server: Redis) -> dict[str, int]:
    """Return how often each command has been called."""
    found = {}
    for line in server.execute("INFO", "commandstats").splitlines():
        name, _, facts = line.strip().partition(":")
        if name.startswith("cmdstat_"):
            found[name[8:]] = int(facts.partition("calls=")[2].partition(",")[0])
    return found


def started(work: Callable[[], Any]) -> threading.Thread:
    """Begin work on a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
