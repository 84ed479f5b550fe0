"""What this process has in the queues: an entry for each claim, held or waiting.

The ttl of a lock is kept here. A node lives as long as the session of its process, which may be
for much longer; so each process removes its own nodes whose ttl has run out, and the servers those
of a process that has gone.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ...core.threads import Mutex
from ...core.values import Claim

__all__ = ["ZooKeeperEntries", "ZooKeeperEntry"]


class ZooKeeperEntry:
    """One claim's entry in the queue of its lock."""

    __slots__ = (
        "ahead",
        "base",
        "due",
        "granted",
        "key",
        "limit",
        "looked",
        "lost",
        "node",
        "note",
        "owner",
        "session",
        "shared",
        "slot",
        "stale",
        "token",
        "unsure",
        "waker",
        "watching",
    )

    def __init__(self, claim: Claim, base: str, due: float) -> None:
        self.owner = claim.owner
        self.shared = claim.shared  # whether its node says that others may hold the lock, too
        self.limit = claim.limit
        self.base = base  # the path of all locks
        self.key = claim.key  # of the lock
        self.due = due  # when it is given up, by the clock, unless it is heard of before
        self.node = ""  # the name of its own node; none yet, or its answer was lost
        self.session: int | None = None  # whose node it is
        self.token = 0
        self.slot: int | None = None
        self.granted = False
        self.lost = False  # its session was not sure to live, if only for a moment
        self.unsure = False  # a release was sent and not answered
        self.ahead: tuple[str, ...] = ()  # the nodes that it waits for, when it was read
        self.looked = 0.0  # when that was
        self.note = ""  # the holder's, if it was seen
        self.watching = ""  # the path of the node of which it will be told; "" once it was
        self.stale = False  # told that something has changed
        self.waker: Callable[[], None] | None = None

    @property
    def path(self) -> str:
        """The path of the lock; put together when asked for, as each lease would keep its own."""
        return f"{self.base}/{self.key}"

    @property
    def whole(self) -> str:
        """The path of its node."""
        return f"{self.path}/{self.node}"

    def tell(self, path: str, *, deleted: bool) -> None:
        """Note what was told of a node that it watched, and wake the waiter.

        It may have read the queue since, and watch another one by now.
        """
        if self.watching == path:
            self.watching = ""  # first: whoever reads the queue just now watches once more
        if deleted and not self.limit and [f"{self.path}/{node}" for node in self.ahead] == [path]:
            self.ahead = ()  # nobody can have come before it since
        else:
            self.stale = True
        waker = self.waker
        if waker is not None:
            waker()


class ZooKeeperEntries:
    """All entries of this process, and the nodes that are still to be removed."""

    def __init__(self) -> None:
        self._mutex = Mutex()
        self._entries: dict[str, ZooKeeperEntry] = {}
        self._due: list[tuple[float, int, str]] = []
        self._order = itertools.count()
        self._watches: dict[str, list[ZooKeeperEntry]] = {}
        self.doomed: dict[str, int | None] = {}  # paths of nodes to be removed, and their sessions

    def get(self, owner: str) -> ZooKeeperEntry | None:
        """Return the entry of an owner."""
        return self._entries.get(owner)

    def add(self, entry: ZooKeeperEntry) -> None:
        """Keep an entry."""
        with self._mutex:
            self._entries[entry.owner] = entry
            self._plan(entry)

    def lasts(self, entry: ZooKeeperEntry, due: float) -> bool:
        """Put off when an entry is given up, or hasten it; False when it has been given up.

        Put off it is found out when the old time comes; so renewing costs next to nothing here.
        """
        with self._mutex:
            if self._entries.get(entry.owner) is not entry:
                return False
            before, entry.due = entry.due, due
            if due < before:
                self._plan(entry)
            return True

    def _plan(self, entry: ZooKeeperEntry) -> None:
        heapq.heappush(self._due, (entry.due, next(self._order), entry.owner))

    def drop(self, entry: ZooKeeperEntry) -> None:
        """Forget an entry, whose node has gone or is seen to by the caller."""
        with self._mutex:
            if self._entries.get(entry.owner) is entry:
                del self._entries[entry.owner]
            self._unwatch(entry)
            # Released before they are due: all but a few are taken out now and then.
            if len(self._due) > 64 + 2 * len(self._entries):
                self._due = [each for each in self._due if each[2] in self._entries]
                heapq.heapify(self._due)

    def _unwatch(self, entry: ZooKeeperEntry) -> None:
        if entry.watching in self._watches and entry in self._watches[entry.watching]:
            self._watches[entry.watching].remove(entry)

    def overdue(self, now: float) -> list[ZooKeeperEntry]:
        """Take out the entries whose time is up."""
        over = []
        with self._mutex:
            while self._due and self._due[0][0] <= now:
                entry = self._entries.get(heapq.heappop(self._due)[2])
                if entry is None:
                    continue
                if entry.due > now:
                    self._plan(entry)
                    continue
                del self._entries[entry.owner]
                self._unwatch(entry)
                if entry.node and not entry.lost:
                    self.doomed[entry.whole] = entry.session
                over.append(entry)
        return over

    def next_due(self) -> float | None:
        """Return when the next entry may be due."""
        with self._mutex:
            return self._due[0][0] if self._due else None

    def __iter__(self) -> Iterator[ZooKeeperEntry]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    # -- watches ---------------------------------------------------------------------------------

    def watch(self, entry: ZooKeeperEntry, path: str) -> Callable[[Any], None] | None:
        """Note that an entry waits for the end of a node; return a watcher if one has to be set.

        One for each node: waiters that come and go while the node stays leave none behind.
        """
        with self._mutex:
            self._unwatch(entry)
            # From now on: it may be told before the answer to the request for it is read.
            entry.watching = path
            known = self._watches.get(path)
            if known is not None:
                known.append(entry)
                return None
            self._watches[path] = [entry]

        def watcher(event: Any) -> None:
            self.told(path, deleted=event.type == "DELETED")

        return watcher

    def told(self, path: str, *, deleted: bool) -> None:
        """Wake the waiters for the end of a node; it has come, or the watch was lost."""
        with self._mutex:
            waiting = self._watches.pop(path, [])
        for entry in waiting:
            entry.tell(path, deleted=deleted)
