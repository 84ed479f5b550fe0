"""The queue to wait in on SQLite: bytes of a file beside the database's, locked by the kernel.

A name has two, at an offset that comes from its digest, so that the file stays empty and one serves
all names. A waiter asks for the second, then for the first byte, and gives the second up when it
has the first: so one is always the next, and one that leaves and returns does not overtake it.

The locks belong to the file as it was opened (OFD, see fcntl(2)): they end with the process, and
its other locks are not concerned. It cannot be the database's own file: to close that once more
would free the locks that SQLite has on it.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final
from urllib.parse import unquote, urlsplit

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import OperationalError

from ...core.clock import Clock
from .queue_connections import QueueConnection

__all__ = ["SUFFIX", "QueueFile", "asking"]

SUFFIX: Final = "-distlock"
INSIDE, NEXT = 0, 1  # the bytes


class QueueFile(QueueConnection):
    """The file beside the database ``name``, opened, and made, when it is first needed."""

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(clock)
        path = unquote(urlsplit(name).path) if name.startswith("file:") else name
        self._path = os.path.realpath(path)
        self._file: int | None = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def enter(self, key: str, limit: float) -> bool:
        # The kernel takes no limit. Those who wait have one of their own; the thread stays until
        # the wait queue is free, and then finds whether somebody wants it still.
        try:
            if self._file is None:
                self._file = _opened(self._path)
            others = [self._take(key, NEXT), self._take(key, INSIDE)]
            self._ask(fcntl.F_UNLCK, key, NEXT)
        except OSError as error:
            self.close()
            raise OperationalError(f"{self._path}{SUFFIX}: {error}") from error
        self.used = self._clock()
        self.waited = any(others)
        if self._shut:
            self.close()
            return False
        return True

    def leave(self, key: str) -> bool:
        try:
            self._ask(fcntl.F_UNLCK, key, INSIDE)
        except OSError:  # it is closed, and the wait queue left with it
            return False
        self.used = self._clock()
        return True

    def _take(self, key: str, byte: int) -> bool:
        """Take a byte, and tell whether another had it."""
        try:
            self._ask(fcntl.F_WRLCK, key, byte)
        except BlockingIOError:
            self._ask(fcntl.F_WRLCK, key, byte, fcntl.F_OFD_SETLKW)
            return True
        return False

    def _ask(self, kind: int, key: str, byte: int, how: int = fcntl.F_OFD_SETLK) -> None:
        file = -1 if self._file is None else self._file
        fcntl.fcntl(file, how, asking(kind, key, byte))

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def forget_parent(self) -> BaseDatabaseWrapper | None:
        self.close()  # the parent has it open still, so its locks stay
        return None

    def shut(self) -> None:
        self._shut = True
        # A thread that waits cannot be called back: it closes the file when its turn has come.
        self.worker.close(wait=0.0)
        if not self.worker.is_busy():
            self.close()


def asking(kind: int, key: str, byte: int = INSIDE) -> bytes:
    """Return the C structure that asks for a byte of a name (struct flock, on 64 bits)."""
    place = 2 * int(key[:15], 16)  # of 2^61: two names at one offset would only wait too often
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, place + byte, 1, 0)


def _opened(path: str) -> int:
    """Open the file; a new one gets the owner of the database, as SQLite's do."""
    where = path + SUFFIX
    try:
        return os.open(where, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        like = os.stat(path)
    file = os.open(where, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, like.st_mode & 0o666)
    if os.geteuid() == 0:
        os.fchown(file, like.st_uid, like.st_gid)
    return file
