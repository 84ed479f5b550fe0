"""The contract suite on a cluster of three members of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import pytest

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.testing.contract import LockBackendContract
from tests import clusters, etcd_servers
from tests.contract.connections import sockets_to
from tests.servers import chosen

if "etcd" in chosen():

    class TestEtcdCluster(LockBackendContract):
        """Keys and leases that a majority of three has agreed on."""

        alias = "etcd-cluster"
        brief = kept = 1.5
        settles = 20.0  # a leader has to be elected before
        round_trip = 1.0
        hand_over = 2.0
        _twins: ClassVar[list[BaseLockBackend]] = []

        @classmethod
        def backend(cls) -> BaseLockBackend:
            """Return the backend; once the tests are collected, the cluster is started for it."""
            if clusters.is_hidden(cls.alias):
                etcd_servers.running_cluster()
            return super().backend()

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def _running(cls) -> None:
            etcd_servers.running_cluster()

        def twin(self, alias: str, prefix: str) -> BaseLockBackend:
            self._twins.append(super().twin(alias, prefix))
            return self._twins[-1]

        def restart_store(self) -> None:
            cluster = etcd_servers.running_cluster()
            for node in cluster.nodes:
                node.kill()
            cluster.bring_up()

        def hang_store(self) -> AbstractContextManager[None]:
            return self._paused()

        @contextmanager
        def _paused(self) -> Iterator[None]:
            cluster = etcd_servers.running_cluster()
            for node in cluster.nodes:
                node.pause()
            try:
                yield
            finally:
                for node in cluster.nodes:
                    node.resume()
                cluster.leader  # noqa: B018 - waits for one

        def open_connections(self) -> int:
            for backend in (self.backend(), *self._twins):
                assert isinstance(backend, EtcdBackend)
                backend.close_idle()
            nodes = etcd_servers.running_cluster().nodes
            return sum(sockets_to(node.port) for node in nodes)
