"""The contract suite's hooks for techniques of SQL on a database server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import ClassVar

from django_distlock import LockBackendError
from django_distlock.backends.advisory import AdvisoryBackend
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.row import RowBackend
from django_distlock.testing.contract import LockBackendContract
from django_distlock.testing.runners import Runner
from tests.conftest import SERVERS
from tests.contract.connections import sockets_in_use
from tests.servers import DatabaseServer

__all__ = ["AdvisoryOnServer", "OnServer", "RowOnServer", "wait_for_a_row"]


def wait_for_a_row(server: DatabaseServer) -> int:
    """Return how many statements wait for a row.

    A statement that was sent first may be begun later, on a busy machine.
    """
    waiting = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
        # INNODB_TRX is read from a cache that each look within 0.1 s keeps as it is.
        "mariadb": "SELECT count(*) FROM information_schema.processlist "
        "WHERE state = 'Statistics' AND info LIKE 'SET STATEMENT%FOR UPDATE'",
        "mysql": "SELECT count(*) FROM performance_schema.data_lock_waits",
    }
    return int(server.execute(waiting[server.name]))


class OnServer(LockBackendContract):
    """A technique of SQL, on a database server of this run."""

    asks_once: ClassVar[bool] = True  # to acquire is one statement, on a session that is there

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

    async def test_an_answer_that_came_while_the_process_stood_still(self, runner: Runner) -> None:
        """Read it when the process goes on, though the call has taken longer than it may by then.

        As when a machine is suspended or moved. To shut the session would cost all its locks. Who
        has to ask once more has no time left for it, and is told so.
        """
        held, asked = runner.name("held"), runner.name("asked")
        async with self.process(runner) as process:
            await process.acquire(held, ttl=20)
            with self.hang_store():
                process.tell("acquire", name=asked, wait=0, options={"ttl": 20})
                await asyncio.sleep(0.3)  # it has asked
                os.kill(process.pid, signal.SIGSTOP)
            await asyncio.sleep(1.5)
            os.kill(process.pid, signal.SIGCONT)
            with nullcontext() if self.asks_once else suppress(LockBackendError):
                assert await process.answer() is not None
                await process.release(asked)
            await process.release(held)


class OnSessions(OnServer):
    """A technique whose locks belong to sessions of their own."""

    asks_once = False
    least = 0.2
    short = 0.5
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
        return wait_for_a_row(self.server) >= waiters


class AdvisoryOnServer(OnSessions):
    """Advisory locks of sessions, on a database server of this run."""

    shown = 20.0  # what a process holds is written in the background

    def queued(self, waiters: int) -> bool:
        waiting = {
            "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
            "mariadb": "SELECT count(*) FROM information_schema.processlist"
            " WHERE state = 'User lock'",
            "mysql": "SELECT count(*) FROM information_schema.processlist"
            " WHERE state = 'User lock'",
        }
        return int(self.server.execute(waiting[self.server.name])) >= waiters
