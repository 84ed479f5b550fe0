"""Releases that a node has not confirmed: sent again, so that it keeps no grant of a released lock.

A node that was paused reads what was sent to it when it goes on, each connection by itself: a
release may be read before the request that it follows. So where the answer to that request is
missing, too, the release is sent several times. What is not sent lapses with its ttl.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

from ...core.threads import Mutex
from .rounds import Answers, NotAskedError, Round

__all__ = ["Debts", "Words"]

MOST = 2_000  # releases that are remembered for each node
TIMES = 3  # that a release is sent whose request may be read after it

Words: TypeAlias = "tuple[str, str, str, str]"
"""What the script of a release is called with: the lock, the index, the owner, the attempt."""
Asked: TypeAlias = "tuple[str, str]"
"""The lock and the owner of a request."""


class Debts:
    """What each of the nodes of an alias has to be told once more."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.forget_parent()

    def forget_parent(self) -> None:
        """Begin without debts, which in a forked child are the parent's."""
        self._mutex = Mutex()
        self._owed: list[OrderedDict[Words, int]] = [OrderedDict() for _ in range(self._nodes)]
        # Which nodes may read a request later, by what was asked.
        self._doubtful: dict[Asked, set[int]] = {}

    def begin(self, round_: Round) -> None:
        """Forget the releases of an owner who asks again: they would free what it is granted."""
        if round_.script.name == "acquire" and any(self._owed):
            for key, index, owner, *_ in round_.calls:
                with self._mutex:
                    for owed in self._owed:
                        owed.pop((key, index, owner, ""), None)

    def note(self, round_: Round, answers: Answers) -> bool:
        """Note what a round leaves open; return whether a node has to be told again."""
        name = round_.script.name
        if name not in ("acquire", "restore", "release"):
            return False
        missing = {number for number, each in enumerate(answers) if isinstance(each, Exception)}
        if name == "release":
            return self._release(round_.calls, missing)
        missing -= {n for n, each in enumerate(answers) if isinstance(each, NotAskedError)}
        if missing:
            with self._mutex:
                for key, _, owner, *_ in round_.calls:
                    self._doubtful.setdefault((key, owner), set()).update(missing)
                while len(self._doubtful) > MOST:
                    del self._doubtful[next(iter(self._doubtful))]
        return False

    def _release(self, calls: Sequence[tuple[str, ...]], missing: set[int]) -> bool:
        if not missing and not self._doubtful:
            return False
        with self._mutex:
            for key, index, owner, attempt in calls:
                doubtful = self._doubtful.pop((key, owner), set())
                for number in missing | doubtful:
                    owed = self._owed[number]
                    owed[key, index, owner, attempt] = TIMES if number in doubtful else 1
                    if len(owed) > MOST:
                        owed.popitem(last=False)
        return any(self._owed)

    def of(self, number: int) -> list[Words]:
        """Return what a node has to be told."""
        with self._mutex:
            return list(self._owed[number])

    def told(self, number: int, words: Sequence[Words]) -> None:
        """Note that a node has answered."""
        with self._mutex:
            owed = self._owed[number]
            for each in words:
                if (left := owed.get(each, 0)) > 1:
                    owed[each] = left - 1
                else:
                    owed.pop(each, None)
