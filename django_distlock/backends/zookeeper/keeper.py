"""The thread of an alias that keeps its session in sight and removes what is over.

It is no watchdog of leases: it renews none. It asks the servers now and then whether the session
lives, gives up entries whose ttl has run out, and has leases checked that may be lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ...core import threads
from ...core.clock import Clock
from ...core.threads import Mutex
from .entries import ZooKeeperEntries
from .handlers import Batch
from .requests import kinds
from .session import ZooKeeperSession

__all__ = ["Keeper"]

logger = logging.getLogger("django_distlock.zookeeper")

BEATS = 20  # questions in one timeout of the session
IDLE_BEATS = 5  # the same while nothing hangs on it; seldom, but before the session is doubtful
PATIENCE = 1 / 3  # of that timeout, after which a connection without an answer is given up


class Keeper:
    """Runs from the first entry on until the alias is closed."""

    def __init__(
        self,
        alias: str,
        base: str,
        clock: Clock,
        entries: ZooKeeperEntries,
        lost: Callable[[], None],
    ) -> None:
        self._alias = alias
        self._base = base
        self._clock = clock
        self._entries = entries
        self._lost = lost
        self.session: ZooKeeperSession
        self._wake = threads.Event()
        self._thread: threading.Thread | None = None
        self._mutex = Mutex()
        self._closed = False
        self._until = 0.0  # when it runs next, unless it is woken
        self._removing: set[str] = set()
        self._asking, self._asked = False, 0.0
        self._looked: tuple[int | None, bool] = (None, False)

    def sleeps_past(self, due: float) -> bool:
        """Return whether something that is due then has to be told by `wake`."""
        return self._thread is None or due < self._until

    def wake(self) -> None:
        """Look at all again: something is due earlier, or the connection has changed."""
        if self._thread is None:
            self._begin()
        self._wake.set()

    def _begin(self) -> None:
        with self._mutex:
            if self._thread is None and not self._closed:
                name = f"distlock-{self._alias}_keeper"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                threads.start(thread)  # where that is interrupted, the next wake begins another
                self._thread = thread

    def close(self) -> None:
        """End the thread."""
        with self._mutex:
            self._closed = True
        self._wake.set()

    def _run(self) -> None:
        next_beat = self._clock()
        while True:
            self._wake.clear()
            if self._closed:  # asked after the clearing, which would take the call of `close` away
                return
            if self._thread not in (None, threading.current_thread()):
                return  # whoever began this one was interrupted, and another was begun
            self._until = 0.0  # what comes meanwhile is told, or seen below
            now = self._clock()
            try:
                if now >= next_beat:
                    beats = BEATS if self._entries else IDLE_BEATS
                    next_beat = now + self.session.timeout / beats
                    self._ask()
                self._entries.overdue(now)
                self.remove()
                self._look(now)
            except Exception:  # it must go on: the ttls of all locks depend on it
                logger.exception("Keeping the session of alias %r failed", self._alias)
            due = self._entries.next_due()
            wait = next_beat if due is None else min(next_beat, due)
            sure = self.session.sure_until(self.session.id)
            if now < sure < wait:
                wait = sure
            self._until = wait
            self._wake.wait(max(0.0, wait - self._clock()))

    def _ask(self) -> None:
        """Ask whether the session lives, without waiting for the answer."""
        if not self.session.up:
            return
        if self._asking:
            if self._clock() - self._asked > PATIENCE * self.session.timeout:
                self.session.cut()
                self._asking = False  # kazoo may lose a question that it was sent meanwhile
            return
        if self._clock() - self.session.last < 1.8 * self.session.timeout / BEATS:
            return  # others have asked
        requests = [kinds().Sync(self._base)]

        def told(batch: Batch) -> None:
            self._asking = False
            if not isinstance(batch.answers[0], Exception):
                self.session.count(batch, requests)

        self._asking, self._asked = True, self._clock()
        self.session.send(requests, told)

    def remove(self) -> None:
        """Send for the removal of nodes that are over; what is asked after it finds them gone."""
        session = self.session
        for path, of in list(self._entries.doomed.items()):
            if of != session.id and session.id is not None:
                self._entries.doomed.pop(path, None)  # gone with its session
            elif path not in self._removing and session.up:
                self._removing.add(path)
                session.send([kinds().Delete(path, -1)], self._removed(path))

    def _removed(self, path: str) -> Callable[[Batch], None]:
        from kazoo.exceptions import NoNodeError

        def told(batch: Batch) -> None:
            self._removing.discard(path)
            answer = batch.answers[0]
            if not isinstance(answer, Exception) or isinstance(answer, NoNodeError):
                self._entries.doomed.pop(path, None)
            else:
                logger.info("Removing a node of alias %r failed: %r", self._alias, answer)

        return told

    def _look(self, now: float) -> None:
        """Have leases checked whose session ended or was not heard of for too long."""
        session = self.session
        seen = session.id, now < session.sure_until(session.id)
        if seen != self._looked:
            before, self._looked = self._looked, seen
            if before[0] is not None and (before[0] != seen[0] or not seen[1]):
                self._given_up()
                self._lost()

    def _given_up(self) -> None:
        """Note which leases are lost, for good: their nodes go, also if the session lives on."""
        for entry in self._entries:
            if entry.granted and self._clock() >= self.session.sure_until(entry.session):
                entry.lost = True
                self._entries.doomed[entry.whole] = entry.session
