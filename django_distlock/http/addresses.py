"""The addresses of a host, looked up within a limit: Python's own call has none."""

from __future__ import annotations

import functools
import ipaddress
import socket
import threading
from typing import Any, TypeAlias

from ..core import threads
from ..core.fork import after_fork

__all__ = ["Addresses", "alook_up", "look_up"]

Addresses: TypeAlias = "list[tuple[Any, ...]]"
"""As of `socket.getaddrinfo`."""


class _Lookup:
    """One question to the resolver, on a thread of its own, for all who ask the same meanwhile."""

    def __init__(self, host: str, port: int) -> None:
        self.done = threads.Event()
        self._asked = host, port
        self._found: Addresses = []
        self._error: Exception | None = None
        name = f"distlock-resolver {host}"
        threads.start(threading.Thread(target=self._run, name=name, daemon=True))

    def _run(self) -> None:
        try:
            self._found = _ask(*self._asked)
        except Exception as error:  # noqa: BLE001 - of who waits
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Addresses:
        """Return what was found, or raise what the resolver said."""
        if not self.done.is_set():
            raise TimeoutError("the name was not resolved in time")
        if self._error is not None:
            raise self._error
        return self._found


_under_way: dict[tuple[str, int], _Lookup] = {}
after_fork(_under_way.clear)  # a child has no thread of the parent's


def _ask(host: str, port: int) -> Addresses:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _look_up(host: str, port: int) -> _Lookup:
    key = host, port
    lookup = _under_way.get(key)
    if lookup is None or lookup.done.is_set():
        lookup = _under_way[key] = _Lookup(host, port)
    return lookup


def look_up(host: str, port: int, limit: float) -> Addresses:
    """Return the addresses of a host; raise OSError, TimeoutError after ``limit`` seconds."""
    if _is_address(host):
        return _ask(host, port)
    lookup = _look_up(host, port)
    lookup.done.wait(limit)
    return lookup.result()


async def alook_up(host: str, port: int, limit: float) -> Addresses:
    """Look up as `look_up`, on the event loop; on none of the threads that it lends."""
    if _is_address(host):
        return _ask(host, port)
    lookup = _look_up(host, port)
    await lookup.done.await_set(limit)
    return lookup.result()


@functools.cache
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
