"""The contract suite on a Consul cluster of three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from django_distlock.backends.base import BaseLockBackend
from django_distlock.testing.contract import LockBackendContract
from tests import clusters, consul_servers
from tests.contract.test_consul import OnConsul
from tests.servers import chosen

if "consul" in chosen():

    class TestConsulCluster(OnConsul, LockBackendContract):
        """Three servers, all of which are named."""

        alias = "consul-cluster"
        brief, kept = 1.5, 4.0
        settles = 20.0  # a leader has to be elected before
        moments_apart = 7  # all of them are tried elsewhere

        @classmethod
        def backend(cls) -> BaseLockBackend:
            """Return the backend; once the tests are collected, the cluster is started for it."""
            if clusters.is_hidden(cls.alias):
                consul_servers.cluster()
            return super().backend()

        @pytest.fixture(scope="class", autouse=True)
        @classmethod
        def started(cls) -> Iterator[None]:
            """Start the cluster; it is ended with the run."""
            cls.servers = consul_servers.cluster().nodes
            yield
            cls.servers = []

        def restart_store(self) -> None:
            """Restart one after the other, as an operator would."""
            for server in self.servers:
                server.restart()
                consul_servers.cluster().wait()

        @contextmanager
        def _paused(self) -> Iterator[None]:
            with super()._paused():
                yield
            consul_servers.cluster().wait()
