"""What is asked, what is answered, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = ["FRESH", "Answer", "Endpoint", "HttpError", "Request", "overdue", "parse_endpoint"]

FRESH = 30.0
"""Seconds without use after which a connection is not used again: what is between may have
forgotten it, and would say nothing of that."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server listens."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def authority(self) -> str:
        """What the Host header says."""
        return str(self).partition("//")[2]


def parse_endpoint(url: object, port: int) -> Endpoint:
    """Return the endpoint of ``http://host:port`` or https, ``port`` being the usual one.

    Raises ValueError for anything else: a path, a query; a user, whose password it does not show.
    """
    shown = repr(url)
    if "@" in shown:
        shown = "one with a user or a password"
    wrong = ValueError(f"an address as 'http://127.0.0.1:{port}' is expected, not {shown}")
    if not isinstance(url, str):
        raise wrong
    try:
        parts = urlsplit(url)
        host, number = parts.hostname, parts.port
    except ValueError as error:
        raise wrong from error
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise wrong
    if parts.path not in ("", "/") or parts.query or parts.fragment or number == 0:
        raise wrong
    return Endpoint(host, port if number is None else number, parts.scheme == "https")


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    ``wait``: for how many seconds the server may hold its answer back. ``again``: whether it may
    be sent once more when it is not known whether it was carried out. ``only``: the one server
    that is asked.
    """

    method: str
    target: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    wait: float = 0.0
    again: bool = True
    only: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said; the names of the headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, which is JSON; raise HttpError if it is none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise HttpError(f"no JSON was answered: {self.body[:200]!r}") from error


class HttpError(Exception):
    """No server gave an answer.

    ``sent``: whether one may have carried the request out. ``turned_away``: whether it has closed
    a new connection without a word, as where a client may have no more of them.
    """

    def __init__(self, text: str, *, sent: bool = True, turned_away: bool = False) -> None:
        super().__init__(text)
        self.sent = sent
        self.turned_away = turned_away


def overdue(endpoint: Endpoint, limit: float, *, sent: bool) -> HttpError:
    """Return the error of a server that did not answer within ``limit`` seconds."""
    within = f"within {round(limit, 2):g} s" if limit >= 0.01 else "in what was left of the time"
    return HttpError(f"{endpoint} did not answer {within}", sent=sent)
