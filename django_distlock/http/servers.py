"""Where the servers of an alias are, by its LOCATION and OPTIONS, and which is asked next."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..backends.options import TLS_FILES, file_name, tls_context
from ..conf import OptionSpec
from ..core.threads import Mutex
from ..exceptions import InvalidLockBackendError
from .messages import Answer, Endpoint, HttpError, Request, parse_endpoint

__all__ = ["TLS_SPEC", "Route", "Servers", "endpoints_of", "tls_of"]

# A server that is alone, or that has lost its leader, says so; another one may do better.
_ELSEWHERE = frozenset((500, 502, 503, 504))


class Servers:
    """The servers, and the one that answered last."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._first = 0
        self.answered = False  # whether any of them has
        self._mutex = Mutex()

    def __len__(self) -> int:
        return len(self._endpoints)

    def order(self) -> list[Endpoint]:
        """Return the servers in the order in which they are to be asked."""
        first = self._first
        return [*self._endpoints[first:], *self._endpoints[:first]]

    def prefer(self, endpoint: Endpoint) -> None:
        """Ask this one, which has answered, first from now on."""
        self.answered = True
        if self._endpoints[self._first] != endpoint:
            with self._mutex:
                self._first = self._endpoints.index(endpoint)


class Route:
    """One request's way: from server to server until one answers or the time is up."""

    def __init__(self, servers: Servers, request: Request, limit: float) -> None:
        self._servers = servers
        self._request = request
        self._ends = time.monotonic() + limit
        self._left = servers.order() if request.only is None else [request.only]
        self._now: Endpoint | None = None
        self._error = HttpError("no server is named", sent=False)
        self._failed = False
        self._answer: Answer | None = None

    def next(self) -> tuple[Endpoint, float] | None:
        """Return whom to ask now, and for how many seconds; None when `ending` says the end."""
        if not self._left or (self._failed and self._is_over()):
            return None
        left = max(self._ends - time.monotonic(), 0.001)
        # A server that hangs must leave time for the others.
        share = min(left, self._request.wait + (left - self._request.wait) / len(self._left))
        self._now = self._left.pop(0)
        return self._now, max(share, 0.001)

    def _is_over(self) -> bool:
        forbidden = self._error.sent and not self._request.again
        return forbidden or time.monotonic() >= self._ends

    def failed(self, error: HttpError) -> None:
        """Note that the server asked last gave no answer."""
        self._error, self._failed = error, True

    def took(self, answer: Answer) -> bool:
        """Note an answer; return whether it is the one to return."""
        if answer.status in _ELSEWHERE and self._left and self._request.again:
            self._answer = answer
            self.failed(HttpError(f"status {answer.status}"))
            return False
        if self._now is not None and self._request.only is None:
            self._servers.prefer(self._now)
        return True

    def ending(self) -> Answer:
        """Return the best answer there was, or raise the last error."""
        if self._answer is not None:
            return self._answer
        raise self._error


TLS_SPEC: Final[OptionSpec] = dict.fromkeys(TLS_FILES, file_name)


def endpoints_of(alias: str, location: object, port: int, what: str, hint: str) -> list[Endpoint]:
    """Return the servers that a URL or a list of URLs names; ``port`` is the usual one of ``what``.

    Raises InvalidLockBackendError; the ``hint`` says where a user or a token is given instead.
    """
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    urls = [location] if isinstance(location, str) else location
    if not isinstance(urls, list | tuple) or not urls:
        raise InvalidLockBackendError(
            f"{where} is the URL of {what}, as 'http://127.0.0.1:{port}', or a list of several, "
            f"not {location!r}."
        )
    found: list[Endpoint] = []
    for url in urls:
        try:
            endpoint = parse_endpoint(url, port)
        except ValueError as error:
            raise InvalidLockBackendError(f"{where}: {error}. {hint}.") from error
        if endpoint in found:
            raise InvalidLockBackendError(f"{where} names {endpoint} twice.")
        found.append(endpoint)
    return found


def tls_of(
    alias: str, opts: Mapping[str, Any], endpoints: Sequence[Endpoint]
) -> ssl.SSLContext | None:
    """Return how the servers are spoken to by TLS; None when they are not.

    Raises InvalidLockBackendError.
    """
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    if any(each.tls for each in endpoints):
        try:
            return tls_context(opts)
        except ValueError as error:
            raise InvalidLockBackendError(f"{where}: {error}.") from error
    for key in TLS_FILES:
        if key in opts:
            raise InvalidLockBackendError(
                f"{where}: {key} needs addresses in LOCATION that begin with https."
            )
    return None
