"""The nodes, as the whole process sees them: which are down, and how far a round has come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...core import threads
from ...core.threads import Mutex
from ...core.worker import begin
from ..redis.connection import Connection
from ..redis.location import Target
from .debts import Debts
from .rounds import Answers, NotAskedError, Round, script
from .votes import quorum

__all__ = ["OWED", "PATIENCE", "Cluster", "Node", "Progress"]

OWED = 32
"""Answers that a node may owe before it is asked no more."""
STRAGGLE = 0.001  # seconds that a decided round waits at least for nodes that are a little late
GRACE = 0.005  # seconds for nodes that owe answers, when the others have given theirs
PATIENCE = 2.0  # seconds after which a node that owes an answer is taken to be cut off
CONNECT = 0.05  # seconds that a quorum of connections waits at least for the others
MOST_RELEASED = 100  # releases that a node is told of in one write
AGAIN = (0.05, 1.0)  # seconds between two attempts to reach a node that is down: first, longest


@dataclass(eq=False)
class Node:
    """One of the independent servers."""

    number: int
    target: Target
    down: Exception | None = None
    """Why it could not be reached when it was last tried, if it could not."""

    @property
    def shown(self) -> str:
        """Its address for people."""
        return self.target.shown


@dataclass(eq=False)
class Cluster:
    """All nodes of an alias; a thread tries to reach those that are down, while there are any.

    So a node that swallows connections costs one attempt to connect, and not one in each round.
    The thread also tells nodes of releases that they have not confirmed.
    """

    alias: str
    nodes: Sequence[Node]
    limit: float
    _mutex: Any = field(default_factory=Mutex)
    _thread: threading.Thread | None = None
    _ended: threads.Event = field(default_factory=threads.Event)

    def __post_init__(self) -> None:
        self.debts = Debts(len(self.nodes))

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def shown(self) -> list[str]:
        """The addresses for people."""
        return [node.shown for node in self.nodes]

    def asked(self, round_: Round) -> list[int]:
        """Return the nodes that a round asks: not those that are down, when the others may do."""
        nodes = len(self.nodes)
        wanted = round_.nodes
        if wanted is None:
            first = (round_.last + 1) % nodes
            wanted = [*range(first, nodes), *range(first)]
        up = [number for number in wanted if self.nodes[number].down is None]
        if round_.insist or (round_.nodes is None and len(up) < quorum(nodes)):
            return list(wanted)
        return up

    def fail(self, number: int, error: Exception) -> None:
        """Take a node to be down."""
        self.nodes[number].down = error
        self._see_to_nodes()

    def noted(self, round_: Round, answers: Answers) -> Answers:
        """Return the answers to a round, having noted what they leave open."""
        if self.debts.note(round_, answers):
            self._see_to_nodes()
        return answers

    def _see_to_nodes(self) -> None:
        with self._mutex:
            if self._thread is None and not self._ended.is_set():
                name = f"distlock-{self.alias}_nodes"
                thread = threading.Thread(target=self._revive, name=name, daemon=True)
                self._thread = begin(thread)

    def reached(self, number: int) -> None:
        """Take a node to be up."""
        self.nodes[number].down = None

    def _revive(self) -> None:
        delay, longest = AGAIN
        while True:
            with self._mutex:
                wanting = [node for node in self.nodes if node.down or self.debts.of(node.number)]
                if not wanting or self._ended.is_set():
                    self._thread = None
                    return
            self._ended.wait(delay)
            delay = min(2 * delay, longest)
            for node in wanting:
                self._try(node)

    def _try(self, node: Node) -> None:
        from redis.exceptions import RedisError

        if self._ended.is_set():
            return
        connection = Connection(node.target, min(self.limit, 1.0))
        with suppress(RedisError, OSError):
            connection.open(min(self.limit, 1.0))
            node.down = None
            self._settle(node, connection)
        connection.drop()

    def _settle(self, node: Node, connection: Connection) -> None:
        """Tell a node of the releases that it has not confirmed."""
        debts, release = self.debts.of(node.number), script("release").source
        for start in range(0, len(debts), MOST_RELEASED):
            some = debts[start : start + MOST_RELEASED]
            # The whole script: a node that was restarted does not know it.
            told = [("EVAL", release, 2, *words) for words in some]
            answers = connection.ask_all(told, min(self.limit, 1.0))
            for words, answer in zip(some, answers, strict=True):
                if not isinstance(answer, Exception):  # it may not be written, or be loading yet
                    self.debts.told(node.number, [words])

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def forget_parent(self) -> None:
        """Begin again in a forked child."""
        self._mutex, self._thread, self._ended = Mutex(), None, threads.Event()
        self.debts.forget_parent()


class Progress:
    """How far a round has come, and how long it is worth waiting for the rest of it."""

    def __init__(self, round_: Round, nodes: int, asked: Iterable[int]) -> None:
        self.round = round_
        self.answers: Answers = [None] * nodes
        self.pending: dict[int, bool] = {}
        """Who has yet to answer, and whether it owed nothing before: then it will at once."""
        self.started = time.monotonic()
        self.end = self.started + round_.limit
        self._settled: float | None = None
        self._thin: float | None = None
        self._quorum = quorum(nodes)
        self.asked = list(asked)
        self._again: set[int] = set()
        self._answered = False

    def sent(self, number: int, owed: int) -> None:
        """Note that a node was asked."""
        self.pending[number] = not owed

    def got(self, number: int, answer: list[Any] | Exception) -> None:
        """Note what a node said."""
        self.answers[number] = answer
        self._answered = True
        self.forget(number)

    def until(self) -> float:
        """Return until when to wait for pending nodes; 0 when not at all."""
        if not self.pending:
            return 0.0
        fresh = any(self.pending.values())
        now = time.monotonic()
        if self._settled is None and self._answered and self.round.decided(self.answers):
            self._settled = now
        if self._settled is not None:
            late = max(STRAGGLE, self._settled - self.started)
            return min(self.end, self._settled + late) if fresh else 0.0
        if fresh:
            return self.end
        if not self.round.patient:
            return 0.0
        if self._said() >= self._quorum:
            self._thin = self._thin or now
            return min(self.end, self._thin + GRACE)
        return self.end

    def _said(self) -> int:
        """Return how many nodes have answered, and not failed."""
        return sum(isinstance(each, list) for each in self.answers)

    def may_repeat(self, number: int, error: Exception) -> bool:
        """Return whether to ask a node once more, as its connection was closed, perhaps long ago.

        Asked again, a node answers as it did before.
        """
        if number in self._again or not is_reset(error):
            return False
        self._again.add(number)
        return True

    def forget(self, number: int) -> None:
        """Take it back that a node was asked: its connection is no more."""
        self.pending.pop(number, None)

    def connecting_ends(self, begun: float, connected: int) -> float:
        """Return until when to go on connecting, of what began then; so many are ``connected``.

        A quarter of the time is left for the answers. With a quorum asked or connected, those that
        take much longer than that took are left behind.
        """
        last = self.end - (self.end - begun) / 4
        if self._said() + len(self.pending) + connected < self._quorum:
            return last
        taken = time.monotonic() - begun
        return min(last, begun + taken + max(CONNECT, 3 * taken))

    def rest(self) -> list[int]:
        """Return the nodes to ask after all, when those that are up proved to be too few."""
        if self.round.nodes is not None or self._said() >= self._quorum:
            return []
        return [number for number in range(len(self.answers)) if number not in self.asked]

    def close(self, nodes: Sequence[Node]) -> Answers:
        """Return the answers, with an error for each that is missing."""
        if self.pending:
            from redis.exceptions import TimeoutError

            waited = time.monotonic() - self.started
            for number in self.pending:
                self.answers[number] = TimeoutError(f"no answer within {waited:.3f} s")
        if self.round.nodes is None:
            for number, node in enumerate(nodes):
                if self.answers[number] is None:
                    self.answers[number] = NotAskedError(str(node.down or "it was down just now"))
        return self.answers


def is_reset(error: Exception) -> bool:
    """Return whether a connection was closed, rather than slow."""
    from redis.exceptions import ConnectionError, TimeoutError

    return isinstance(error, ConnectionError) and not isinstance(error, TimeoutError)
