"""The contract suite on ZooKeeper: one server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from django_distlock.testing.contract import LockBackendContract
from tests.servers import chosen
from tests.zookeeper_servers import SERVER

if "zookeeper" in chosen():

    class TestZooKeeper(LockBackendContract):
        """One server."""

        alias = "zookeeper"

        def restart_store(self) -> None:
            SERVER[0].restart()

        def hang_store(self) -> AbstractContextManager[None]:
            return self._paused()

        @contextmanager
        def _paused(self) -> Iterator[None]:
            SERVER[0].pause()
            try:
                yield
            finally:
                SERVER[0].resume()
