"""What people see of the locks that this process holds, written into a table in the background.

No call waits for that: a lock that is released within a few milliseconds is never written. What the
table says is believed only of a session that has the lock: rows that a crash leaves do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...core import clock
from ...core.names import readable
from ...core.threads import Mutex
from ...core.values import Claim
from .dialect import DELETE_SESSION, AdvisoryDialect
from .session import AdvisorySession, Held

__all__ = ["Holders"]

T = TypeVar("T")

BATCH = 500  # rows that one statement deletes
TIDY_EVERY = 600.0  # seconds between two deletions of what crashes have left
HIGH_EVERY = 1.0  # seconds after which the greatest token is noted once more


class Holders:
    """The rows of this process's locks: those still to be written, and those to be deleted."""

    def __init__(self, use: Callable[[Callable[[AdvisorySession], T]], T]) -> None:
        self._use: Callable[[Callable[[AdvisorySession], Any]], Any] = use
        self._reset()

    def _reset(self) -> None:
        self._mutex = Mutex()
        self._writing = Mutex()
        self._new: dict[int, tuple[Held, int]] = {}
        self._written: set[int] = set()
        self._gone: dict[bool, list[int]] = {False: [], True: []}
        """The tokens of rows to delete: of locks that were released, and that were lost."""
        self._begun: list[int] = []
        self._high, self._noted, self._noted_at = 0, 0, 0.0
        self._tidied = -TIDY_EVERY

    def begun(self, number: int) -> None:
        """Note that a session has begun, of whose number an older one may have left rows."""
        with self._mutex:
            self._begun.append(number)

    def add(self, held: Held, number: int) -> None:
        """Note a grant."""
        with self._mutex:
            self._new[held.token] = held, number
            self._high = max(self._high, held.token)

    def remove(self, token: int, *, lost: bool = False) -> None:
        """Note that a lock is held no more: it was released, or ``lost`` with its session."""
        with self._mutex:
            if self._new.pop(token, None) is None and token in self._written:
                self._written.discard(token)
                self._gone[lost].append(token)

    def is_written(self) -> bool:
        """Return whether the table has rows of locks that are held."""
        return bool(self._written)

    def is_due(self) -> bool:
        """Return whether there is something to write."""
        pending = self._new or self._begun or any(self._gone.values())
        return bool(pending or self._high > self._noted)

    def write(self, dialect: AdvisoryDialect, age: float = 0.0) -> None:
        """Write the locks that are held for ``age`` seconds, and delete those that are no more.

        What fails is kept for the next time.
        """
        with self._writing:
            now = clock.now()
            with self._mutex:
                new = {t: each for t, each in self._new.items() if now - each[0].since >= age}
                for token in new:
                    del self._new[token]
                gone, self._gone = self._gone, {False: [], True: []}
                begun, self._begun = self._begun, []
                self._written |= set(new)
                high = self._high
            if not dialect.keeps_high:
                self._noted = high
            noting = dialect.keeps_high and high > self._noted
            noting = noting and now - self._noted_at >= HIGH_EVERY
            tidying = now - self._tidied >= TIDY_EVERY
            if not (new or any(gone.values()) or begun or noting or tidying):
                return
            rows = [self._row(now, *each) for each in new.values()]

            def work(session: AdvisorySession) -> None:
                for number in begun:
                    session.change(DELETE_SESSION, {"session": number})
                for lost, tokens in gone.items():
                    for start in range(0, len(tokens), BATCH):
                        dialect.delete(session, tokens[start : start + BATCH], lost=lost)
                if rows:
                    dialect.insert(session, rows)
                if noting:
                    dialect.note_high(session, high)
                if tidying:
                    dialect.tidy(session)

            try:
                self._use(work)
            except BaseException:
                self._take_back(new, gone, begun)
                raise
            if noting:
                self._noted, self._noted_at = high, now
            if tidying:
                self._tidied = now

    def _take_back(
        self, new: dict[int, tuple[Held, int]], gone: dict[bool, list[int]], begun: list[int]
    ) -> None:
        with self._mutex:
            for token, each in new.items():
                if token in self._written:  # else it has been released meanwhile
                    self._written.discard(token)
                    self._new[token] = each
            for lost, tokens in gone.items():
                self._gone[lost] += tokens
            self._begun += begun

    def _row(self, now: float, held: Held, number: int) -> dict[str, Any]:
        claim: Claim = held.claim
        return {
            "token": held.token,
            "digest": claim.key,
            "name": readable(claim.name),
            "owner": claim.owner,
            "note": claim.note,
            "lock": held.lock,
            "session": number,
            "age": round((now - held.since) * 1_000_000),
        }

    def forget_parent(self) -> None:
        """Forget, in a forked child, the locks of the parent."""
        self._reset()
