"""Acting between two requests, or two steps, of one operation."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

__all__ = ["meanwhile", "meddling"]


@contextmanager
def meddling(asker: object, method: str, meddle: Callable[[Any], None]) -> Iterator[None]:
    """Have ``meddle`` told each request of the block before ``asker.method`` sends it."""
    real = getattr(asker, method)

    def ask(request: Any, *more: Any) -> Any:
        meddle(request)
        return real(request, *more)

    with mock.patch.object(asker, method, ask):
        yield


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do ``work`` over and over on another thread, and have the two take turns often."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            work()

    other = threading.Thread(target=run)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        other.start()
        yield
    finally:
        sys.setswitchinterval(usual)
        ended.set()
        other.join(30.0)
