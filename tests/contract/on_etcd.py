"""What the contract suite has to know of etcd, of whatever version and number of nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.testing.contract import LockBackendContract
from tests.contract.connections import sockets_to
from tests.servers import Etcd

__all__ = ["OnEtcd"]


class OnEtcd(LockBackendContract):
    """Keys and leases, on servers of ours."""

    _twins: ClassVar[list[BaseLockBackend]] = []

    @property
    @abstractmethod
    def nodes(self) -> Sequence[Etcd]:
        """The servers."""

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        self._twins.append(super().twin(alias, prefix))
        return self._twins[-1]

    def restart_store(self) -> None:
        for node in self.nodes:
            node.restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        nodes = self.nodes  # asked once: to ask for a cluster is to wait until it is well
        for node in nodes:
            node.pause()
        try:
            yield
        finally:
            for node in nodes:
                node.resume()

    def open_connections(self) -> int:
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, EtcdBackend)
            backend.close_idle()
        return sum(sockets_to(node.port) for node in self.nodes)
