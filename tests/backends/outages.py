"""What the tests of outages share: a server that may be disturbed, and short waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django_distlock import Lease, lock
from django_distlock.signals import lock_released
from tests.servers import DatabaseServer, ServerError

COMMAND = 1.0
"""COMMAND_TIMEOUT: seconds after which a statement without an answer counts as failed."""


@dataclass
class Place:
    """The alias "own" of DATABASES and of DISTLOCKS, on a server that nobody else uses."""

    server: DatabaseServer

    def end_sessions(self) -> None:
        """Have the server end all sessions of the database.

        The newest first: else who waits could get what the ended session of the holder has freed.
        """
        if self.server.name == "postgresql":
            self.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'own' "
                "ORDER BY backend_start DESC"
            )
            return
        found = self.server.execute(
            "SELECT id FROM information_schema.processlist WHERE db = 'own' ORDER BY id DESC"
        )
        for number in found.split():
            with contextlib.suppress(ServerError):  # it has ended by itself
                self.server.execute(f"KILL {number}")


def taken(name: str, **options: Any) -> Lease:
    """Take a lock of the alias "own"."""
    lease: Lease | None = lock(name, using="own", **options).acquire()
    assert lease
    return lease


@contextmanager
def loss_told() -> Iterator[threading.Event]:
    """Lend an event that is set when a loss is signalled."""
    told = threading.Event()

    def note(outcome: str, **facts: Any) -> None:
        if outcome == "lost":
            told.set()

    lock_released.connect(note)
    try:
        yield told
    finally:
        lock_released.disconnect(note)
