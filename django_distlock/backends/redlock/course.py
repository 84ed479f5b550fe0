"""How a round is carried out on the wires of a ring, call by call; pure but for the clock.

A course is a flow, whose steps are calls of a wire: made at once in a thread, by `ring.py`, and
awaited on an event loop, by `aring.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...core.flow import Do, Flow, carried
from .asking import Answers, NotAskedError, Operation, Round
from .nodes import OWED, PATIENCE, Cluster, Progress
from .waiting import Turn, rooms
from .wire import SLICE

__all__ = ["Course", "Line"]

T = TypeVar("T")


class Line(Protocol):
    """What is called of a `Wire` or an `AsyncWire`."""

    pack: Callable[[Iterable[tuple[Any, ...]]], bytes]
    owed: int

    @property
    def is_open(self) -> bool: ...
    @property
    def silent_for(self) -> float: ...
    def connect(self, limit: float) -> Any: ...
    def send(self, packed: bytes, expected: int) -> Any: ...
    def receive(self, limit: float) -> Any: ...
    def wait(self, packed: bytes, limit: float) -> Any: ...
    def drop(self) -> Any: ...


class Course:
    """What is done with the wires of one ring.

    ``connect`` opens the wires of some nodes for a round and returns what went wrong with each: of
    all together where calls are ``awaited``, else of one at a time. ``glance`` is how many seconds
    a look at an answer takes that is not waited for. Calls that are not awaited, and are made for
    each node in each round, are made here, not yielded.
    """

    def __init__(
        self,
        cluster: Cluster,
        wires: Sequence[Line],
        *,
        sleep: Callable[[float], Any],
        connect: Callable[[Progress, Sequence[int], float, int], Any],
        awaited: bool,
        glance: float,
    ) -> None:
        from redis import exceptions

        self._failures = (exceptions.RedisError, OSError)
        self._overdue = (exceptions.TimeoutError, TimeoutError)
        self._no_script = exceptions.NoScriptError
        self._cluster = cluster
        self._wires = wires
        self._sleep, self._glance = sleep, glance
        self._open, self._awaited = connect, awaited
        self._pack = wires[0].pack

    def carry_out(self, operation: Operation[T]) -> Flow[T]:
        """Return a flow that carries an operation out, round by round."""
        return carried(operation, self.ask)

    def ask(self, round_: Round) -> Flow[Answers]:
        """Carry a round out."""
        if round_.after:
            yield Do(self._sleep, (round_.after,))
        self._cluster.debts.begin(round_)
        progress = Progress(round_, len(self._wires), self._cluster.asked(round_))
        packed = self._pack(round_.commands())
        yield from self._ask(progress, progress.asked, packed)
        yield from self._read(progress, packed)
        if rest := progress.rest():
            yield from self._ask(progress, rest, packed)
            yield from self._read(progress, packed)
        return self._cluster.noted(round_, progress.close(self._cluster.nodes))

    # -- asking ------------------------------------------------------------------------------------

    def _ask(self, progress: Progress, numbers: Iterable[int], packed: bytes) -> Flow[None]:
        unconnected = []
        expected = len(progress.round.calls)
        for number in numbers:
            wire = self._wires[number]
            late = wire.owed and (wire.owed >= OWED or wire.silent_for > PATIENCE)
            if late and not (yield from self._catches_up(wire)):
                progress.got(number, NotAskedError(f"it owes {OWED} answers"))
            elif not wire.is_open:
                unconnected.append(number)
            else:
                owed = wire.owed
                try:
                    if self._awaited:
                        yield Do(wire.send, (packed, expected))
                    else:
                        wire.send(packed, expected)
                except self._failures as error:
                    yield from self._failed(progress, number, error, packed)
                else:
                    progress.sent(number, owed)
        if unconnected:
            yield from self._connect(progress, unconnected, packed)

    def _connect(self, progress: Progress, numbers: Sequence[int], packed: bytes) -> Flow[None]:
        begun = time.monotonic()
        groups = [numbers] if self._awaited else [[number] for number in numbers]
        for left, group in zip(range(len(groups), 0, -1), groups, strict=True):
            errors: Mapping[int, Exception | None]
            errors = yield Do(self._open, (progress, group, begun, left))
            connected = []
            for number, error in errors.items():
                if error is None:
                    self._cluster.reached(number)
                    connected.append(number)
                else:
                    yield from self._give_up(progress, number, error)
            yield from self._ask(progress, connected, packed)

    def _catches_up(self, wire: Line) -> Flow[bool]:
        """Read what a node that went on has answered by now; return whether it can be asked.

        One that has not said a word for a long time is taken to be cut off, and connected to again.
        """
        owed = wire.owed
        try:
            yield Do(wire.receive, (self._glance,))
        except self._overdue:
            if wire.owed == owed and wire.silent_for > PATIENCE:
                yield Do(wire.drop, ())
            return wire.owed < OWED
        except self._failures:
            yield Do(wire.drop, ())
        return True

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, progress: Progress, packed: bytes) -> Flow[None]:
        over = False
        while not over:
            until = progress.until()
            now = time.monotonic()
            if until <= now:
                if not until or now < progress.end:
                    return
                over = True  # after a last look, as connecting may have taken all of the time
            others = any(progress.pending.values())
            turn = self._glance if over else min(SLICE, until - now)
            for number, fresh in list(progress.pending.items()):
                limit = turn if fresh or not others else self._glance
                wire = self._wires[number]
                try:
                    if self._awaited:
                        answer = yield Do(wire.receive, (limit,))
                    else:
                        answer = wire.receive(limit)
                except self._overdue:
                    continue
                except self._failures as error:
                    yield from self._failed(progress, number, error, packed)
                    continue
                if self._no_script in map(type, answer):
                    yield from self._load(progress, number, packed)
                else:
                    progress.got(number, answer)

    def _load(self, progress: Progress, number: int, packed: bytes) -> Flow[None]:
        """Send a node the script, and the question once more."""
        wire = self._wires[number]
        load = self._pack([("SCRIPT", "LOAD", progress.round.script.source)])
        try:
            yield Do(wire.send, (load, 1))
            yield Do(wire.send, (packed, len(progress.round.calls)))
        except self._failures as error:
            yield from self._give_up(progress, number, error)

    # -- failures ----------------------------------------------------------------------------------

    def _failed(
        self, progress: Progress, number: int, error: Exception, packed: bytes
    ) -> Flow[None]:
        """Ask once more, on a new connection, a node that has closed the one there was."""
        if progress.may_repeat(number, error):
            yield Do(self._wires[number].drop, ())
            progress.forget(number)
            yield from self._connect(progress, [number], packed)
        else:
            yield from self._give_up(progress, number, error)

    def _give_up(self, progress: Progress, number: int, error: Exception) -> Flow[None]:
        yield Do(self._wires[number].drop, ())
        self._cluster.fail(number, error)
        progress.got(number, error)

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, turn: Turn) -> Flow[bool]:
        """Block on one node; False when there is none to block on."""
        for number in rooms(self._cluster, turn.key):
            wire = self._wires[number]
            if wire.owed:
                continue
            packed = self._pack(turn.commands())
            try:
                if not wire.is_open:
                    yield Do(wire.connect, (turn.patience,))
                yield Do(wire.wait, (packed, turn.patience))
            except self._overdue as error:
                yield Do(wire.drop, ())
                if turn.is_whole:
                    self._cluster.fail(number, error)
            except self._failures:
                yield Do(wire.drop, ())
                return False  # the next attempt says what is the matter, if anything still is
            return True
        return False
