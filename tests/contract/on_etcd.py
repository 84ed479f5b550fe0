"""What the contract suite has to know of one node of etcd, whatever its version."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.testing.contract import LockBackendContract
from tests.contract.connections import sockets_to
from tests.servers import Etcd

__all__ = ["OnEtcd"]


class OnEtcd(LockBackendContract):
    """Keys and leases, on a server of ours."""

    _twins: ClassVar[list[BaseLockBackend]] = []

    @property
    @abstractmethod
    def node(self) -> Etcd:
        """The server."""

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        self._twins.append(super().twin(alias, prefix))
        return self._twins[-1]

    def restart_store(self) -> None:
        self.node.restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self.node.pause()
        try:
            yield
        finally:
            self.node.resume()

    def open_connections(self) -> int:
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, EtcdBackend)
            backend.close_idle()
        return sockets_to(self.node.port)
