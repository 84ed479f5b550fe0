"""The contract suite on a cluster of three members of etcd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from django_distlock.backends.base import BaseLockBackend
from tests import clusters, etcd_servers
from tests.contract.on_etcd import OnEtcd
from tests.servers import Etcd, chosen

if "etcd" in chosen():

    class TestEtcdCluster(OnEtcd):
        """Keys and leases that a majority of three has agreed on."""

        alias = "etcd-cluster"
        brief, kept = 2.5, 4.0
        settles = 20.0  # a leader has to be elected before
        moments_apart = 7  # all of them are tried elsewhere

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

        @property
        def nodes(self) -> Sequence[Etcd]:
            """The three."""
            return etcd_servers.running_cluster().nodes

        def restart_store(self) -> None:
            cluster = etcd_servers.running_cluster()
            for node in cluster.nodes:
                node.kill()
            cluster.bring_up()

        @contextmanager
        def _paused(self) -> Iterator[None]:
            with super()._paused():
                yield
            etcd_servers.running_cluster().leader  # noqa: B018 - waits for one
