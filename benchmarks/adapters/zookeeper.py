"""Ways to take a lock in ZooKeeper."""

from __future__ import annotations

import os
import threading
import uuid
from typing import Any, ClassVar

from ..adapter import Adapter, Backend
from .ours import OursLimited, OursShared
from .redis.ours import OursRedis

__all__ = ["ZOOKEEPER"]

BASE = "/bench"


def hosts() -> str:
    """Return where the server is."""
    from django.conf import settings

    where: str = settings.DISTLOCKS["default"]["LOCATION"]
    return where


class OursZooKeeper(OursRedis):
    """The zookeeper backend, in a process that has its database open, too."""

    backend: ClassVar[Backend] = "zookeeper"


class OursZooKeeperShared(OursShared, OursZooKeeper):
    """The same, shared with others."""


class OursZooKeeperLimited(OursLimited, OursZooKeeper):
    """The same, held by four at once."""


class OnKazoo(Adapter):
    """What has one client of kazoo for each process."""

    backend = "zookeeper"
    needs: ClassVar[tuple[str, ...]] = ("kazoo",)

    def open(self) -> None:
        """Connect."""
        from kazoo.client import KazooClient

        self._client: Any = KazooClient(hosts())
        self._client.start()

    def close(self) -> None:
        """Say goodbye."""
        self._client.stop()
        self._client.close()


class BareCalls(OnKazoo):
    """The calls that a queue needs: make a node and read the queue together, watch, remove."""

    name = "bare, kazoo calls"
    kind = "baseline"

    def open(self) -> None:
        """Connect, and make what all locks stand below."""
        super().open()
        self._known: set[str] = set()

    def _join(self, key: str) -> tuple[str, str, list[str]]:
        path = f"{BASE}/{key.replace('/', '_')}"
        if path not in self._known:
            self._client.ensure_path(path)
            self._known.add(path)
        create = self._client.create_async(
            f"{path}/{uuid.uuid4().hex}-", b"bench", ephemeral=True, sequence=True
        )
        listed = self._client.get_children_async(path)
        node = create.get().rpartition("/")[2]
        return path, node, self._ahead(listed.get(), node)

    @staticmethod
    def _ahead(children: list[str], node: str) -> list[str]:
        line = sorted(children, key=lambda child: child[-10:])
        return line[: line.index(node)]

    def acquire(self, key: str) -> Any:
        """Stand in the queue until nobody stands before us."""
        path, node, ahead = self._join(key)
        while ahead:
            gone = threading.Event()
            if self._client.exists(f"{path}/{ahead[-1]}", lambda _, gone=gone: gone.set()):
                gone.wait()
            if len(ahead) == 1:
                break
            ahead = self._ahead(self._client.get_children(path), node)
        return f"{path}/{node}"

    def try_acquire(self, key: str) -> Any:
        """Stand in the queue, and leave it unless we are the first."""
        path, node, ahead = self._join(key)
        if not ahead:
            return f"{path}/{node}"
        self._client.delete(f"{path}/{node}")
        return None

    def release(self, handle: Any) -> None:
        """Remove our node."""
        self._client.delete(handle)


class KazooLock(OnKazoo):
    """kazoo's recipe."""

    name = "kazoo Lock"
    kind = "alternative"
    at_once: int | None = 1

    def _make(self, key: str) -> Any:
        return self._client.Lock(f"{BASE}/kazoo/{key.replace('/', '_')}", str(os.getpid()))

    def acquire(self, key: str) -> Any:
        """Wait for it."""
        made = self._make(key)
        made.acquire()
        return made

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        made = self._make(key)
        return made if made.acquire(blocking=False) else None

    def release(self, handle: Any) -> None:
        """Free it."""
        handle.release()


class KazooReadLock(KazooLock):
    """kazoo's recipe of readers and writers, as a reader."""

    name = "kazoo ReadLock"
    waits = exclusive = False
    at_once = None

    def _make(self, key: str) -> Any:
        return self._client.ReadLock(f"{BASE}/kazoo-rw/{key.replace('/', '_')}", str(os.getpid()))


class KazooWriteLock(KazooLock):
    """The same, as a writer."""

    name = "kazoo WriteLock"
    at_once = None

    def _make(self, key: str) -> Any:
        return self._client.WriteLock(f"{BASE}/kazoo-w/{key.replace('/', '_')}", str(os.getpid()))


class KazooSemaphore(KazooLock):
    """kazoo's recipe of a semaphore, whose leases four may hold at once."""

    name = "kazoo Semaphore, 4"
    waits = exclusive = False
    at_once = 4

    def _make(self, key: str) -> Any:
        path = f"{BASE}/kazoo-sem/{key.replace('/', '_')}"
        return self._client.Semaphore(path, str(os.getpid()), max_leases=self.at_once)


class ToozZooKeeper(Adapter):
    """tooz of OpenStack: kazoo's recipe below a coordinator."""

    name = "tooz"
    kind = "alternative"
    backend = "zookeeper"
    needs = ("kazoo", "tooz")

    def open(self) -> None:
        """Connect the coordinator."""
        from tooz import coordination

        make: Any = coordination.get_coordinator
        self._coordinator = make(f"kazoo://{hosts()}", f"bench-{os.getpid()}".encode())
        self._coordinator.start()

    def close(self) -> None:
        """Stop the coordinator."""
        self._coordinator.stop()

    def acquire(self, key: str) -> Any:
        """Wait for it."""
        made = self._coordinator.get_lock(key.encode())
        made.acquire()
        return made

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        made = self._coordinator.get_lock(key.encode())
        return made if made.acquire(blocking=False) else None

    def release(self, handle: Any) -> None:
        """Free it."""
        handle.release()


ZOOKEEPER: tuple[type[Adapter], ...] = (
    *(OursZooKeeper, BareCalls, KazooLock, KazooWriteLock, ToozZooKeeper),
    *(OursZooKeeperShared, KazooReadLock, OursZooKeeperLimited, KazooSemaphore),
)
