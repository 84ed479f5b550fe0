"""The contract suite on ZooKeeper: one server, and a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import pytest

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.testing.contract import LockBackendContract
from tests import clusters
from tests.contract.connections import sockets_to
from tests.servers import ZooKeeper, chosen
from tests.zookeeper_servers import CLUSTER, SERVER, cluster


class OnZooKeeper(LockBackendContract):
    """Servers of this run."""

    # Each grant is a write of the servers, also while they are busy with other things.
    short = 0.5
    servers: ClassVar[Sequence[ZooKeeper]]
    _twins: ClassVar[list[BaseLockBackend]] = []

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        self._twins.append(super().twin(alias, prefix))
        return self._twins[-1]

    def restart_store(self) -> None:
        for server in self.servers:
            server.restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        for server in self.servers:
            server.pause()
        try:
            yield
        finally:
            for server in self.servers:
                server.resume()

    def open_connections(self) -> int:
        """Count them, but for the one that every alias keeps."""
        count = sum(sockets_to(server.port) for server in self.servers)
        open_ones = 0
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, ZooKeeperBackend)
            open_ones += backend._session.up
        return max(0, count - open_ones)


if "zookeeper" in chosen():

    class TestZooKeeper(OnZooKeeper):
        """One server."""

        alias = "zookeeper"
        servers = SERVER

    class TestZooKeeperCluster(OnZooKeeper):
        """Three servers, all of which are stopped, or restarted one after the other."""

        alias = "zookeeper-cluster"
        brief, kept = 1.5, 4.0
        settles = 20.0  # a leader has to be elected before
        servers = CLUSTER[0].members

        @classmethod
        def backend(cls) -> BaseLockBackend:
            """Return the backend; once the tests are collected, the cluster is started for it."""
            if clusters.is_hidden(cls.alias):
                cluster()
            return super().backend()

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def _started(cls) -> None:
            cluster()

        def restart_store(self) -> None:
            super().restart_store()
            CLUSTER[0].wait()
