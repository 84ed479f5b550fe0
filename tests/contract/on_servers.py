"""The contract suite's hooks for techniques of SQL on a database server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from django_distlock.backends.advisory import AdvisoryBackend
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.row import RowBackend
from django_distlock.testing.contract import LockBackendContract
from tests.conftest import SERVERS
from tests.contract.connections import sockets_in_use
from tests.servers import DatabaseServer

__all__ = ["AdvisoryOnServer", "OnServer", "RowOnServer"]


class OnServer(LockBackendContract):
    """A technique of SQL, on a database server of this run."""

    @property
    def server(self) -> DatabaseServer:
        """The server of the alias."""
        return SERVERS[self.alias.rpartition("-")[2]]

    def restart_store(self) -> None:
        self.server.restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self.server.pause()
        try:
            yield
        finally:
            self.server.resume()

    def open_connections(self) -> int:
        return sockets_in_use(self.backend(), self.server.port)


class OnSessions(OnServer):
    """A technique whose locks belong to sessions of their own."""

    # A new session may be needed, and PostgreSQL's driver knows no limit on connecting below 2 s.
    round_trip = 1.0
    least = 0.2
    _twins: ClassVar[list[BaseLockBackend]] = []

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        twin = super().twin(alias, prefix)
        assert isinstance(twin, RowBackend | AdvisoryBackend)
        self._twins.append(twin)
        return twin

    def open_connections(self) -> int:
        for twin in self._twins:
            sockets_in_use(twin, self.server.port)  # which closes what it keeps
        return super().open_connections()


class RowOnServer(OnSessions):
    """Rows locked by FOR UPDATE, on a database server of this run."""

    def queued(self, waiters: int) -> bool:
        # A statement that was sent first may be begun later, on a busy machine.
        waiting = {
            "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
            # INNODB_TRX is read from a cache that each look within 0.1 s keeps as it is.
            "mariadb": "SELECT count(*) FROM information_schema.processlist "
            "WHERE state = 'Statistics' AND info LIKE 'SET STATEMENT%FOR UPDATE'",
            "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
        }
        return int(self.server.execute(waiting[self.server.name])) >= waiters


class AdvisoryOnServer(OnSessions):
    """Advisory locks of sessions, on a database server of this run."""

    shown = 2.0

    def queued(self, waiters: int) -> bool:
        waiting = {
            "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
            "mariadb": "SELECT count(*) FROM information_schema.processlist"
            " WHERE state = 'User lock'",
            "mysql": "SELECT count(*) FROM information_schema.processlist"
            " WHERE state = 'User lock'",
        }
        return int(self.server.execute(waiting[self.server.name])) >= waiters
