"""What the tests of the HTTP client are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_distlock.http import Answer, Http, Request

__all__ = ["LIMIT", "Ask", "Open", "get"]

Ask = Callable[[Http, Request, float], Answer]
Open = Callable[..., Http]

LIMIT = 10.0


def get(path: str = "/", **more: Any) -> Request:
    """Return a request without a body."""
    return Request("GET", path, **more)
