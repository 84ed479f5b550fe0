"""Asking all nodes at once, from a thread: send to all, then read from all, on one thread.

A `Ring` is a connection to each node, lent to one thread for one operation. What a node does not
answer in time, it owes: the connection stays open, and the answer is read before the next one. So a
node that was stopped gets a request and its undoing in their order, when it goes on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from .nodes import OWED, PATIENCE, Cluster, Node, Progress
from .rounds import Answers, NotAskedError, Operation, QuorumError, Round

__all__ = ["Ring", "Rings"]

T = TypeVar("T")

IDLE = 64  # rings that are kept when nobody needs them
SLICE = 0.005  # seconds for one node, after which the others are looked at


class Wire:
    """A connection to one node."""

    def __init__(self, node: Node, limit: float) -> None:
        from redis import exceptions

        self.connection: Any = node.place.connection(limit)
        self._error = exceptions.ResponseError
        self.owed = 0
        self._since = 0.0
        self._expected = 0
        self._got: list[Any] = []

    @property
    def silent_for(self) -> float:
        """For how long it has owed an answer."""
        return time.monotonic() - self._since if self.owed else 0.0

    def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        connection = self.connection
        connection.socket_timeout = connection.socket_connect_timeout = limit
        connection.connect()
        # From now on it is the time of one look, so that most need not set it.
        connection.socket_timeout = SLICE
        connection.update_current_socket_timeout(SLICE)

    def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        self.connection.send_packed_command([packed], check_health=False)
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        read = self.connection.read_response
        while self.owed:
            answer: Any
            try:
                if limit == SLICE:
                    answer = read(disconnect_on_error=False)
                else:
                    answer = read(timeout=limit, disconnect_on_error=False)
            except self._error as error:
                answer = error
            self.owed -= 1
            if self.owed < self._expected:
                self._got.append(answer)
        return self._got

    def drop(self) -> None:
        """Close it."""
        self.connection.disconnect()
        self.owed = 0


class Ring:
    """A wire to each node."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        from redis import exceptions

        self._errors = exceptions
        self._cluster = cluster
        self._wires = [Wire(node, limit) for node in cluster.nodes]

    def ask(self, round_: Round) -> Answers:
        """Carry a round out."""
        if round_.after:
            time.sleep(round_.after)
        progress = Progress(round_, len(self._wires), self._cluster.asked(round_))
        packed = b"".join(self._wires[0].connection.pack_commands(round_.commands()))
        self._ask(progress, progress.asked, packed)
        self._read(progress, packed)
        if rest := progress.rest():
            self._ask(progress, rest, packed)
            self._read(progress, packed)
        return progress.close(self._cluster.nodes)

    def _ask(self, progress: Progress, numbers: Iterable[int], packed: bytes) -> None:
        unconnected = []
        for number in numbers:
            wire = self._wires[number]
            if wire.silent_for > PATIENCE:
                self._give_up(progress, number, TimeoutError(f"silent for {PATIENCE:g} s"))
            elif wire.connection.is_connected:
                self._send(progress, number, packed)
            else:
                unconnected.append(number)
        for left, number in zip(range(len(unconnected), 0, -1), unconnected, strict=True):
            limit = max((progress.end - time.monotonic()) / left, 0.02)
            self._connect(progress, number, packed, limit)

    def _connect(self, progress: Progress, number: int, packed: bytes, limit: float) -> None:
        try:
            self._wires[number].connect(limit)
        except (self._errors.RedisError, OSError) as error:
            self._give_up(progress, number, error)
        else:
            self._cluster.reached(number)
            self._send(progress, number, packed)

    def _send(self, progress: Progress, number: int, packed: bytes) -> None:
        wire = self._wires[number]
        if wire.owed >= OWED:
            progress.got(number, NotAskedError(f"it owes {wire.owed} answers"))
            return
        owed = wire.owed
        try:
            wire.send(packed, len(progress.round.calls))
        except self._errors.RedisError as error:
            if progress.may_repeat(number, error):
                wire.drop()
                self._connect(progress, number, packed, max(progress.end - time.monotonic(), 0.02))
            else:
                self._give_up(progress, number, error)
        else:
            progress.sent(number, owed)

    def _read(self, progress: Progress, packed: bytes) -> None:
        while True:
            until = progress.until()
            now = time.monotonic()
            if until <= now:
                return
            others = bool(progress.fresh)
            for number in list(progress.pending):
                waits = number in progress.fresh or not others
                self._receive(progress, number, packed, min(SLICE, until - now) if waits else 0)

    def _receive(self, progress: Progress, number: int, packed: bytes, limit: float) -> None:
        wire = self._wires[number]
        try:
            answer = wire.receive(limit)
        except self._errors.TimeoutError:
            return
        except (self._errors.RedisError, OSError) as error:
            wire.drop()
            if progress.may_repeat(number, error):
                progress.pending.remove(number)
                self._connect(progress, number, packed, max(progress.end - time.monotonic(), 0.02))
            else:
                self._give_up(progress, number, error)
            return
        if any(isinstance(each, self._errors.NoScriptError) for each in answer):
            load = wire.connection.pack_command("SCRIPT", "LOAD", progress.round.script.source)
            try:
                wire.send(b"".join(load), 1)
                wire.send(packed, len(progress.round.calls))
            except self._errors.RedisError as error:
                self._give_up(progress, number, error)
            return
        progress.got(number, answer)

    def _give_up(self, progress: Progress, number: int, error: Exception) -> None:
        self._wires[number].drop()
        self._cluster.fail(number, error)
        progress.got(number, error)

    def close(self) -> None:
        """Close the wires."""
        for wire in self._wires:
            with suppress(OSError):
                wire.drop()


class Rings:
    """The rings of a process: each is lent for one operation."""

    def __init__(self, cluster: Cluster, limit: float) -> None:
        self._cluster = cluster
        self._limit = limit
        self._idle: deque[Ring] = deque()
        self._closed = False

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        try:
            ring = self._idle.pop()
        except IndexError:
            ring = Ring(self._cluster, self._limit)
        try:
            answers: Any = None
            while True:
                answers = ring.ask(operation.send(answers))
        except StopIteration as stop:
            self._give_back(ring)
            result: T = stop.value
            return result
        except QuorumError:
            self._give_back(ring)
            raise
        except BaseException:
            ring.close()  # what was sent, and not read, is not known
            raise

    def _give_back(self, ring: Ring) -> None:
        if self._closed or len(self._idle) >= IDLE:
            ring.close()
        else:
            self._idle.append(ring)

    def close_idle(self) -> None:
        """Close the rings that nobody uses now."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def close(self) -> None:
        """Close those, and the others when they are given back."""
        self._closed = True
        self.close_idle()

    def forget_parent(self) -> None:
        """Begin anew in a forked child; closing there what is the parent's is left to Python."""
        self._idle = deque()
