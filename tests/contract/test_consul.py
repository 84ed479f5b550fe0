"""The contract suite on one Consul server, by both behaviours of its sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.consul import ConsulBackend
from django_distlock.testing.contract import LockBackendContract
from django_distlock.testing.contract.base import ContractBase
from django_distlock.testing.contract.parts import (
    Cleaning,
    Exclusion,
    Fencing,
    Handing,
    Limits,
    Liveness,
    Ownership,
    Shared,
    Visible,
    Waiting,
)
from tests.consul_servers import CONSUL
from tests.contract.connections import sockets_to
from tests.servers import Consul, chosen


class OnConsul(ContractBase):
    """What the suites of Consul share."""

    short = 0.5  # a first grant of a name may be four requests
    servers: list[Consul]
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
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, ConsulBackend)
            backend.close_idle()
        return sum(sockets_to(server.port) for server in self.servers)


if "consul" in chosen():

    class TestConsul(OnConsul, LockBackendContract):
        """Keys that are deleted when they are free."""

        alias = "consul"
        servers = CONSUL

    class TestKeptConsul(
        OnConsul,
        Cleaning,
        Exclusion,
        Fencing,
        Handing,
        Limits,
        Liveness,
        Ownership,
        Shared,
        Visible,
        Waiting,
    ):
        """Keys that stay, so that their LockIndex goes on rising: what that may change."""

        alias = "kept-consul"
        servers = CONSUL
