"""Acting between two requests of one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

__all__ = ["meddling"]


@contextmanager
def meddling(asker: object, method: str, meddle: Callable[[Any], None]) -> Iterator[None]:
    """Have ``meddle`` told each request of the block before ``asker.method`` sends it."""
    real = getattr(asker, method)

    def ask(request: Any, *more: Any) -> Any:
        meddle(request)
        return real(request, *more)

    with mock.patch.object(asker, method, ask):
        yield
