"""What the tests of the redis backend share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from django_distlock.backends.redis import RedisBackend
from tests.claims import opening
from tests.servers import Redis

__all__ = ["BACKEND", "Opener", "calls", "keys", "opener"]

BACKEND = "django_distlock.backends.redis.RedisBackend"
Opener: TypeAlias = Callable[..., RedisBackend]


def _settings(
    alias: str, location: Any, *, prefix: str = "", retention: float = 600, **opts: Any
) -> dict[str, Any]:
    conf = {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}
    return conf | {"RETENTION": retention}


def opener() -> AbstractContextManager[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    return opening(RedisBackend, _settings)


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
