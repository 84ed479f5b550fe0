"""Other libraries' locks in etcd, each made, taken and released as its documentation shows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from ...adapter import Adapter, Polled
from .bare import TTL, url

__all__ = ["Etcd3gw", "ToozEtcd"]


class Etcd3gw(Polled):
    """etcd3gw, which only attempts, tried again every 0.1 s."""

    name = "etcd3gw"
    kind = "alternative"
    backend = "etcd"
    needs = ("etcd3gw",)

    def open(self) -> None:
        """Connect."""
        import etcd3gw

        where = urlsplit(url())
        self._client: Any = etcd3gw.client(host=where.hostname, port=where.port, api_path="/v3/")

    def close(self) -> None:
        """Disconnect."""
        self._client.session.close()

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        lock = self._client.lock(key, ttl=TTL)
        return lock if lock.acquire() else None

    def release(self, handle: Any) -> None:
        """Free it."""
        assert handle.release()

    def pauses(self) -> Iterator[float]:
        """Return the seconds between the attempts."""
        return itertools.repeat(0.1)


class ToozEtcd(Adapter):
    """tooz of OpenStack: etcd3gw's lock below a coordinator."""

    name = "tooz"
    kind = "alternative"
    backend = "etcd"
    needs = ("etcd3gw", "tooz")

    def open(self) -> None:
        """Connect the coordinator."""
        from tooz import coordination

        make: Any = coordination.get_coordinator
        where = f"etcd3+{url()}?api_version=v3"
        self._coordinator = make(where, f"bench-{os.getpid()}".encode())
        self._coordinator.start()

    def close(self) -> None:
        """Stop the coordinator."""
        self._coordinator.stop()

    def acquire(self, key: str) -> Any:
        """Wait for it, as the library does."""
        lock = self._coordinator.get_lock(key.encode())
        assert lock.acquire()
        return lock

    def try_acquire(self, key: str) -> Any:
        """Attempt once."""
        lock = self._coordinator.get_lock(key.encode())
        return lock if lock.acquire(blocking=False) else None

    def release(self, handle: Any) -> None:
        """Free it."""
        handle.release()
