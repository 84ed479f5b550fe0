"""HTTP for stores that speak it: kept connections, several servers, time limits, streams.

The framing is h11's; threads and event loops share all that is not reading or writing a socket.
"""

from __future__ import annotations

from ..exceptions import InvalidLockBackendError
from .clients import Full, Http
from .messages import Answer, Endpoint, HttpError, Request, parse_endpoint
from .steps import Ask, Open, Read
from .streams import AsyncStream, Stream

__all__ = [
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
    "parse_endpoint",
    "require_h11",
]


def require_h11(alias: str, extra: str) -> None:
    """Raise InvalidLockBackendError, which names the ``extra``, unless h11 is installed."""
    try:
        import h11
    except ImportError as error:
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]: h11, which this backend speaks HTTP by, is not installed: "
            f"pip install django-distlock[{extra}]."
        ) from error
    del h11
