"""A private PostgreSQL server."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from .base import DatabaseServer, ServerError


def _places() -> tuple[str, ...]:
    """Return Debian's folders with PostgreSQL's programs, the newest version first."""
    if chosen := os.environ.get("DISTLOCK_TEST_POSTGRESQL_PLACE"):
        return (chosen,)
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    found.sort(key=lambda path: float(path.parent.name), reverse=True)
    return tuple(map(str, found))


class PostgreSQL(DatabaseServer):
    """PostgreSQL from Debian's package, or from PATH; or of DISTLOCK_TEST_POSTGRESQL_PLACE."""

    name = "postgresql"
    package = "postgresql"
    programs = ("initdb", "postgres", "psql")
    places = _places()
    accounts = ("postgres", "nobody")
    stop_signal = signal.SIGINT  # "fast shutdown": does not wait for clients

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    def prepare(self) -> None:
        """Make an empty cluster."""
        words = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self.run("initdb", f"--pgdata={self.data}", f"--username={self.user}", *words)

    def command(self) -> list[str]:
        """Return the command line; all settings are on it."""
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": self._socket_folder(),
            "max_connections": "200",
            "fsync": "on" if self.durable else "off",
            # Shared memory would be in /dev/shm, outside of the folder.
            "dynamic_shared_memory_type": "mmap",
        }
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [self.program("postgres"), "-D", str(self.data), *words, *self.options]

    def answers(self) -> bool:
        """Ask for the data folder, to be sure that it is not another server."""
        return self.execute("SHOW data_directory", limit=5.0) == str(self.data)

    def after_kill(self) -> None:
        """Remove the lock files, and the few bytes of System V memory that only they name."""
        lock = self.data / "postmaster.pid"
        with contextlib.suppress(OSError, IndexError, ServerError):
            self.run("ipcrm", "--shmem-id", lock.read_text().splitlines()[6].split()[1])
        for leftover in (lock, *self.folder.glob(".s.PGSQL.*")):
            leftover.unlink(missing_ok=True)

    def settings(self, name: str) -> dict[str, Any]:
        """Return a ``DATABASES`` entry."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": self.user,
            "PASSWORD": self.password,
            "HOST": self.host,
            "PORT": str(self.port),
        }

    def execute(self, sql: str, *, limit: float = 60.0) -> str:
        """Run SQL in the database ``postgres``."""
        where = ["-h", self.host, "-p", str(self.port), "-U", self.user, "-d", "postgres"]
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *where, "-c", sql, limit=limit)

    def _socket_folder(self) -> str:
        """Return the folder for the socket, or none when its path would be too long for one."""
        path = str(self.folder)
        return path if len(path) < 85 else ""
