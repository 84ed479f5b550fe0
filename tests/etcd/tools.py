"""What the tests of the etcd backend share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias
from unittest import mock

from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.etcd.entries import EtcdEntry
from django_distlock.core.values import Claim
from django_distlock.http import Request
from tests.claims import opening

__all__ = ["BACKEND", "Opener", "entry_of", "opener", "tally"]

BACKEND = "django_distlock.backends.etcd.EtcdBackend"
Opener: TypeAlias = Callable[..., EtcdBackend]


def _settings(alias: str, location: Any, *, prefix: str = "", **opts: Any) -> dict[str, Any]:
    return {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}


def opener() -> AbstractContextManager[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    return opening(EtcdBackend, _settings)


def entry_of(backend: EtcdBackend, claim: Claim) -> EtcdEntry:
    """Return what the process knows of a claim's key."""
    entry = backend._algorithm.entries.get(claim.owner)
    assert entry is not None
    return entry


@contextmanager
def tally(backend: EtcdBackend) -> Iterator[Counter[str]]:
    """Count the requests that this process sends for an alias, by what they ask for."""
    counted: Counter[str] = Counter()
    http = backend._client.http

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def count(request: Request, limit: float) -> Any:
            counted[request.target.rpartition("/")[2]] += 1
            return real(request, limit)

        return count

    with (
        mock.patch.object(http, "ask", counting(http.ask)),
        mock.patch.object(http, "open", counting(http.open)),
        mock.patch.object(http, "aask", counting(http.aask)),
        mock.patch.object(http, "aopen", counting(http.aopen)),
    ):
        yield counted
