"""The queue entries of locks that this process knows of: one a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...core.threads import Mutex
from ...http import AsyncStream, Stream
from .leases import Lent
from .protocol import EtcdKeys, Key

__all__ = ["EtcdEntries", "EtcdEntry"]


@dataclass(slots=True, eq=False)
class EtcdEntry:
    """A claim's key in etcd, the lease it hangs on, and the entry ahead of it."""

    keys: EtcdKeys
    lease: Lent
    shared: bool = False
    """Whether others that share the lock may hold it, too."""
    limit: int = 0
    """How many may hold it at once; 0: it has no limit."""
    created: int = 0
    """The revision at which the key was made; 0: it is not there."""
    granted: bool = False
    ahead: str = ""
    """The key of the one ahead, in base64, or where the queue begins: then the queue is watched."""
    slot: int | None = None
    wanted: bool = False
    """Whether others waited for a slot when it got its own."""
    token: int = 0
    """The fencing token, where it is not the revision at which the key was made."""
    unsure: bool = False
    """Whether a request that puts the key was not answered, or was sent twice."""
    stream: Stream | AsyncStream | None = None
    watched: str = ""
    """The key that the stream watches."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of the stream, if it has one."""

    def wait_for(self, before: Sequence[Key]) -> None:
        """Note what to wait for: ``before`` it in the queue, the key just before it first.

        Under a limit the first waiter watches the whole line, as any may leave. Each other one
        watches the key before its own, under which a slot is written when it has one.
        """
        first = self.limit and len(before) == self.limit
        self.ahead = self.keys.first if first else before[0].key

    def watch(self, stream: Stream | AsyncStream, key: str) -> None:
        """Keep a stream that watches ``key``."""
        self.stream, self.watched = stream, key
        self.loop = asyncio.get_running_loop() if isinstance(stream, AsyncStream) else None

    def stop_watching(self) -> None:
        """Close the stream, from any thread: what a task gave up is withdrawn by another."""
        stream, self.stream, self.watched = self.stream, None, ""
        loop, self.loop = self.loop, None
        if stream is None:
            return
        if loop is None or loop is _running():
            stream.close()
            return
        if isinstance(stream, AsyncStream):
            stream.leave()
        with suppress(RuntimeError):  # the loop is closed, and its connections with it
            loop.call_soon_threadsafe(stream.close)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class EtcdEntries:
    """All entries, by the owner of the claim."""

    def __init__(self) -> None:
        self._all: dict[str, EtcdEntry] = {}
        self._mutex = Mutex()
        self._bound = 256

    def get(self, owner: str) -> EtcdEntry | None:
        return self._all.get(owner)

    def add(self, owner: str, entry: EtcdEntry, now: float) -> EtcdEntry:
        """Note an entry; now and then those are forgotten that ended without a release."""
        with self._mutex:
            if len(self._all) >= self._bound:
                self._all = {key: each for key, each in self._all.items() if each.lease.until > now}
                self._bound = max(256, 2 * len(self._all))
            self._all[owner] = entry
        return entry

    def drop(self, owner: str, entry: EtcdEntry) -> bool:
        """Forget an entry; return whether it was this one, and not forgotten before."""
        with self._mutex:
            known = self._all.get(owner) is entry
            if known:
                del self._all[owner]
        entry.stop_watching()
        return known

    def stop_watching(self) -> None:
        """Close all streams."""
        for entry in list(self._all.values()):
            entry.stop_watching()

    def __len__(self) -> int:
        return len(self._all)
