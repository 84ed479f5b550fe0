"""What the tests of the zookeeper backend share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.backends.zookeeper.algorithm import Talk
from django_distlock.backends.zookeeper.entries import ZooKeeperEntry
from django_distlock.backends.zookeeper.requests import kinds
from django_distlock.core.values import Claim
from tests.claims import opening

__all__ = ["Opener", "ask", "entry_of", "opener", "queue_of"]

BACKEND = "django_distlock.backends.zookeeper.ZooKeeperBackend"
Opener: TypeAlias = Callable[..., ZooKeeperBackend]


def _settings(
    alias: str, location: Any, *, prefix: str = "", session: float = 4.0, **opts: Any
) -> dict[str, Any]:
    opts = {"SESSION_TIMEOUT": session, **opts}
    return {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}


def opener() -> AbstractContextManager[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    return opening(ZooKeeperBackend, _settings)


def ask(backend: ZooKeeperBackend, kind: str, *words: Any) -> Any:
    """Ask the servers something, by the backend's own session; errors are returned."""

    def talk() -> Talk[Any]:
        (answer,) = yield [getattr(kinds(), kind)(*words)]
        return answer

    return backend.do(talk, 10.0)


def queue_of(backend: ZooKeeperBackend, name: str) -> list[str]:
    """Return the names of the nodes that stand in a lock's queue."""
    answer = ask(backend, "GetChildren", f"{backend.facts.base}/{backend.key(name)}", None)
    return [] if isinstance(answer, Exception) else sorted(answer)


def entry_of(backend: ZooKeeperBackend, mine: Claim) -> ZooKeeperEntry:
    """Return a claim's place."""
    entry = backend._entries.get(mine.owner)
    assert entry is not None
    return entry
