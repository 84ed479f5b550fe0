"""The contract suite over three and five independent Redis servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.redlock import RedlockBackend
from django_distlock.testing.contract import LockBackendContract
from tests.contract.connections import sockets_to
from tests.redlock import NODES
from tests.servers import Redis, chosen


class OnNodes(LockBackendContract):
    """A quorum of the first servers of this run."""

    nodes: list[Redis]
    # A grant, or a renewal, takes some answers of each, and they share a few cores.
    short, brief = 0.5, 1.5
    # Each node draws tokens of its own, and the highest is that of the grant.
    numbers_sharers = False
    _twins: ClassVar[list[BaseLockBackend]] = []

    def twin(self, alias: str, prefix: str) -> BaseLockBackend:
        twin = super().twin(alias, prefix)
        self._twins.append(twin)
        return twin

    def restart_store(self) -> None:
        for node in self.nodes:
            node.restart()

    def hang_store(self) -> AbstractContextManager[None]:
        return self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        for node in self.nodes:
            node.pause()
        try:
            yield
        finally:
            for node in self.nodes:
                node.resume()

    def open_connections(self) -> int:
        for backend in (self.backend(), *self._twins):
            assert isinstance(backend, RedlockBackend)
            backend.close_idle()
        return sum(sockets_to(node.port) for node in self.nodes)


if "redis" in chosen():

    class TestRedlock(OnNodes):
        """A quorum of five."""

        alias = "redlock"
        nodes = NODES

    class TestRedlockOfThree(OnNodes):
        """A quorum of three."""

        alias = "redlock-3"
        moments_apart = 7  # all of them are tried elsewhere
        nodes = NODES[:3]
