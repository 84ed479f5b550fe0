"""HTTP for stores that speak it: kept connections, several servers, time limits, streams.

Answers are read by httptools; threads and event loops share all that is not reading or writing a
socket.
"""

from __future__ import annotations

from ..exceptions import InvalidLockBackendError
from .clients import Ask, Full, Http, Open, Read
from .connections import AsyncStream, Stream
from .messages import Answer, Endpoint, HttpError, Request, parse_endpoint
from .servers import TLS_SPEC, endpoints_of, tls_of

__all__ = [
    "TLS_SPEC",
    "Answer",
    "Ask",
    "AsyncStream",
    "Endpoint",
    "Full",
    "Http",
    "HttpError",
    "Open",
    "Read",
    "Request",
    "Stream",
    "endpoints_of",
    "parse_endpoint",
    "require_httptools",
    "tls_of",
]


def require_httptools(alias: str, extra: str) -> None:
    """Raise InvalidLockBackendError, which names the ``extra``, unless httptools is installed."""
    try:
        import httptools
    except ImportError as error:
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]: httptools, by which this backend reads HTTP, is not installed: "
            f'pip install "django-distlock[{extra}]".'
        ) from error
    del httptools
