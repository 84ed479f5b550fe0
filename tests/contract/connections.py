"""Counting what this process has open to a store, by what the system says."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from django_distlock.backends.advisory import AdvisoryBackend
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.row import RowBackend
from django_distlock.backends.table import TableBackend
from django_distlock.backends.table.queue_file import SUFFIX

__all__ = ["connections_to", "open_files", "sockets_in_use", "sockets_to"]


def _targets() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/self/fd/{descriptor}")


def close_idle(backend: BaseLockBackend) -> None:
    """Close what the wait queue keeps for a few seconds, for the next waiter.

    On a thread, as Django closes nothing on that of an event loop.
    """
    assert isinstance(backend, TableBackend | RowBackend | AdvisoryBackend)
    closer = threading.Thread(target=backend.close_idle)
    closer.start()
    closer.join()


def open_files(backend: BaseLockBackend, path: str) -> int:
    """Return how often this process has a database of SQLite open, or the file beside it."""
    close_idle(backend)
    real = str(Path(path).resolve())
    return connections_to(real) + _times_open(f"{real}{SUFFIX}")


def connections_to(path: str) -> int:
    """Return how many connections this process has to a database of SQLite.

    SQLite keeps the descriptor of a connection that was closed while others hold the file's lock,
    as closing it would end theirs; the next connection takes it ("Posix Advisory Locking" in its
    os_unix.c). So new ones are opened: each for which no descriptor comes took such a one.
    """
    kept = _times_open(path)
    with contextlib.ExitStack() as stack:
        for _ in range(kept):
            stack.enter_context(contextlib.closing(sqlite3.connect(path)))
        return _times_open(path) - kept


def _times_open(path: str) -> int:
    return sum(target == path for target in _targets())


def sockets_in_use(backend: BaseLockBackend, port: int) -> int:
    """Return how many connections this process has to a database server of this machine.

    Not counted are those that nobody uses, see `close_idle`.
    """
    close_idle(backend)
    return sockets_to(port)


def sockets_to(port: int) -> int:
    """Return how many connections this process has to a port of this machine.

    Each socket is asked for its peer: the system's table of all connections is long, after some
    thousand tests, and was a third of the contract suite's time.
    """
    return sum(_peer_port(int(descriptor)) == port for descriptor in os.listdir("/proc/self/fd"))


def _peer_port(descriptor: int) -> int | None:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as same:
            peer = same.getpeername()
    except OSError:  # closed meanwhile, or not connected
        return None
    return peer[1] if isinstance(peer, tuple) else None
