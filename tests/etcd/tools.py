"""What the tests of the etcd backend share."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

from django_distlock import locks
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.etcd.places import Place
from django_distlock.conf import parse
from django_distlock.http import Request
from django_distlock.values import Claim, Grant, Refusal

__all__ = [
    "BACKEND",
    "Opener",
    "claim",
    "granted",
    "opener",
    "place_of",
    "refused",
    "soon",
    "started",
    "tally",
]

BACKEND = "django_distlock.backends.etcd.EtcdBackend"
Opener: TypeAlias = Callable[..., EtcdBackend]

_numbers = itertools.count()


@contextmanager
def opener() -> Iterator[Opener]:
    """Open aliases for a while, each by its LOCATION and OPTIONS."""
    made: list[str] = []

    def make(location: Any, *, prefix: str = "", **opts: Any) -> EtcdBackend:
        alias = f"etcd-{next(_numbers)}"
        conf = {"BACKEND": BACKEND, "LOCATION": location, "PREFIX": prefix, "OPTIONS": opts}
        backend = EtcdBackend(alias, parse(alias, conf))
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


def granted(backend: EtcdBackend, claim: Claim, limit: float = 1.0) -> int:
    """Take what must be there to be had, and return the token."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Grant), answer
    return answer.fencing_token


def refused(backend: EtcdBackend, claim: Claim, limit: float = 1.0) -> Refusal:
    """Ask for what another holds."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Refusal), answer
    return answer


def place_of(backend: EtcdBackend, claim: Claim) -> Place:
    """Return what the process knows of a claim's key."""
    place = backend._steps.places.get(claim.owner)
    assert place is not None
    return place


def started(work: Callable[[], Any]) -> threading.Thread:
    """Begin work on a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def soon(condition: Callable[[], object], within: float = 5.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.02)


@contextmanager
def tally(backend: EtcdBackend) -> Iterator[Counter[str]]:
    """Count the requests that this process sends for an alias, by what they ask for."""
    counted: Counter[str] = Counter()
    http = backend._asker.http

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
