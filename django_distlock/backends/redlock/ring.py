"""Asking all nodes at once, from a thread: send to all, then read from all, on one thread.

A `Ring` is a connection to each node, lent to one thread for one operation. What a node does not
answer in time, it owes: the connection stays open, and the answer is read before the next one. So a
node that was stopped gets a request and its undoing in their order, when it goes on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeVar

from ...transactions import INHERITED
from .asking import Answers, NotAskedError, Operation, QuorumError, Round
from .nodes import OWED, PATIENCE, Cluster, Progress
from .waiting import WAITING, Turn, rooms
from .wire import SLICE, Wire

__all__ = ["Ring", "Rings"]

T = TypeVar("T")

IDLE = 64  # rings that are kept when nobody needs them


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
            if wire.owed and wire.silent_for > PATIENCE:
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
        if wire.owed >= OWED and not self._catches_up(wire):
            progress.got(number, NotAskedError(f"it owes {OWED} answers"))
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

    def _catches_up(self, wire: Wire) -> bool:
        """Read what a node that went on has answered by now; tell whether it owes less."""
        try:
            wire.receive(0)
        except self._errors.TimeoutError:
            return wire.owed < OWED
        except (self._errors.RedisError, OSError):
            wire.drop()
            return False
        return True

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
        if self._errors.NoScriptError in map(type, answer):
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

    def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is none to block on."""
        for number in rooms(self._cluster, turn.key):
            wire = self._wires[number]
            if wire.owed:
                continue
            packed = b"".join(wire.connection.pack_commands(turn.commands()))
            try:
                if not wire.connection.is_connected:
                    wire.connect(turn.patience)
                wire.wait(packed, turn.patience)
            except self._errors.TimeoutError as error:
                wire.drop()
                if turn.is_whole:
                    self._cluster.fail(number, error)
            except (self._errors.RedisError, OSError):
                wire.drop()
                return False  # the next attempt says what is the matter, if anything still is
            return True
        return False

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
        self._places = threading.Semaphore(WAITING)

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out, round by round."""
        ring = self._lend()
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

    def wait(self, turn: Turn) -> bool:
        """Block on one node; False when there is no place to."""
        if not self._places.acquire(blocking=False):
            return False
        try:
            ring = self._lend()
            try:
                waited = ring.wait(turn)
            except BaseException:
                ring.close()
                raise
            self._give_back(ring)
            return waited
        finally:
            self._places.release()

    def _lend(self) -> Ring:
        try:
            return self._idle.pop()
        except IndexError:
            return Ring(self._cluster, self._limit)

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
        """Begin anew in a forked child; the connections are the parent's."""
        INHERITED.append(self._idle)
        self._idle, self._places = deque(), threading.Semaphore(WAITING)
