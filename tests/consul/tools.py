"""What the tests of the consul backend share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias
from unittest import mock

from django_distlock.backends.consul import ConsulBackend
from django_distlock.http import Answer, Http, Request
from tests.claims import opening
from tests.consul_servers import settings_of
from tests.servers import Consul

__all__ = ["Opener", "asked", "end_sessions", "keys_of", "opener"]

Opener: TypeAlias = Callable[..., ConsulBackend]


def _settings(
    alias: str, location: Any, *, prefix: str | None = None, **opts: Any
) -> dict[str, Any]:
    return settings_of(location, **opts) | {"PREFIX": alias if prefix is None else prefix}


def opener() -> AbstractContextManager[Opener]:
    """Open aliases for a while, each with a PREFIX of its own unless one is given."""
    return opening(ConsulBackend, _settings)


@contextmanager
def asked(backend: ConsulBackend) -> Iterator[list[Request]]:
    """Note a backend's requests in all threads and event loops, which are sent all the same."""
    requests: list[Request] = []
    real, areal = Http.ask, Http.aask

    def ask(self: Http, request: Request, limit: float) -> Answer:
        if self is backend._http:
            requests.append(request)
        return real(self, request, limit)

    async def aask(self: Http, request: Request, limit: float) -> Answer:
        if self is backend._http:
            requests.append(request)
        return await areal(self, request, limit)

    with mock.patch.object(Http, "ask", ask), mock.patch.object(Http, "aask", aask):
        yield requests


def keys_of(server: Consul, backend: ConsulBackend) -> list[str]:
    """Return the keys of an alias, without what they begin with."""
    start = backend._folder
    return [key.removeprefix(start) for key in server.all_keys() if key.startswith(start)]


def end_sessions(server: Consul, backend: ConsulBackend) -> None:
    """End the sessions of all that a backend holds, as an operator can."""
    for session in {hold.session for hold in backend._algorithm.holds.values()}:
        server.ask("PUT", f"/v1/session/destroy/{session}")
