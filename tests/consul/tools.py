"""What the tests of the consul backend share."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest import mock

from django_distlock import locks
from django_distlock.backends.consul import ConsulBackend
from django_distlock.conf import parse
from django_distlock.http import Answer, Http, Request
from django_distlock.values import Claim, Grant
from tests.consul_servers import settings_of
from tests.servers import Consul

__all__ = ["Opener", "asked", "claim", "granted", "opener", "soon", "started"]

Opener: TypeAlias = Callable[..., ConsulBackend]

_numbers = itertools.count()


@contextmanager
def opener() -> Iterator[Opener]:
    """Open aliases for a while, each with a PREFIX of its own unless one is given."""
    made: list[str] = []

    def make(location: Any, *, prefix: str | None = None, **opts: Any) -> ConsulBackend:
        alias = f"consul-{next(_numbers)}"
        conf = settings_of(location, **opts) | {"PREFIX": alias if prefix is None else prefix}
        backend = ConsulBackend(alias, parse(alias, conf))
        locks[alias] = backend
        made.append(alias)
        return backend

    try:
        yield make
    finally:
        for alias in made:
            del locks[alias]


def claim(backend: ConsulBackend, name: str, ttl: float = 20.0) -> Claim:
    """Return a claim by a new owner."""
    return Claim(name, backend.key(name), secrets.token_hex(16), ttl)


def granted(backend: ConsulBackend, claim: Claim, limit: float = 1.0) -> int:
    """Take what must be there to be had, and return the token."""
    answer = backend.try_acquire(claim, limit)
    assert isinstance(answer, Grant), answer
    return answer.fencing_token


@contextmanager
def asked() -> Iterator[list[Request]]:
    """Note the requests of all threads, which are sent all the same."""
    requests: list[Request] = []
    real = Http.ask

    def ask(self: Http, request: Request, limit: float) -> Answer:
        requests.append(request)
        return real(self, request, limit)

    with mock.patch.object(Http, "ask", ask):
        yield requests


def keys_of(server: Consul, backend: ConsulBackend) -> list[str]:
    """Return the keys of an alias, without what they begin with."""
    start = backend._folder
    return [key.removeprefix(start) for key in server.all_keys() if key.startswith(start)]


def started(work: Callable[[], Any]) -> threading.Thread:
    """Begin work on a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def soon(condition: Callable[[], bool], within: float = 10.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.02)
