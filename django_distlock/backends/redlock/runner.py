"""How a round is carried out on the connections of a client, call by call; pure but for the clock.

A round is a flow whose steps are calls of a connection: made at once in a thread, by `pool.py`,
and awaited on an event loop, by `async_pool.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ...core.flow import Do, Flow, carried
from .connection import SLICE
from .nodes import OWED, PATIENCE, Cluster, Progress
from .rounds import Answers, NotAskedError, Operation, QuorumError, Round
from .waiting import Turn, waiting_nodes

__all__ = ["AnyConnection", "RoundRunner"]

T = TypeVar("T")


class AnyConnection(Protocol):
    """What is called of a `NodeConnection` or an `AsyncNodeConnection`."""

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


class RoundRunner:
    """What is done with the connections of one client.

    ``connect`` opens the connections of some nodes for a round and returns what went wrong with
    each: of all together where calls are ``awaited``, else of one at a time. ``glance`` is how
    many seconds reading takes where an answer is not waited for. Calls that are not awaited, and
    are made for each node in each round, are made here, not yielded.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: Sequence[AnyConnection],
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
        self._connections = connections
        self._sleep, self._glance = sleep, glance
        self._open, self._awaited = connect, awaited
        self._pack = connections[0].pack

    def carry_out(self, operation: Operation[T]) -> Flow[T]:
        """Return a flow that carries an operation out, round by round."""
        return carried(operation, self.ask, QuorumError)

    def ask(self, round_: Round) -> Flow[Answers]:
        """Carry a round out."""
        if round_.after:
            yield Do(self._sleep, (round_.after,))
        self._cluster.debts.begin(round_)
        progress = Progress(round_, len(self._connections), self._cluster.asked(round_))
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
            connection = self._connections[number]
            late = connection.owed and (connection.owed >= OWED or connection.silent_for > PATIENCE)
            if late and not (yield from self._catches_up(connection)):
                progress.got(number, NotAskedError(f"it owes {OWED} answers"))
            elif not connection.is_open:
                unconnected.append(number)
            else:
                owed = connection.owed
                try:
                    if self._awaited:
                        yield Do(connection.send, (packed, expected))
                    else:
                        connection.send(packed, expected)
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

    def _catches_up(self, connection: AnyConnection) -> Flow[bool]:
        """Read what a node that went on has answered by now; return whether it can be asked.

        One that has not said a word for a long time is taken to be cut off, and connected to again.
        """
        owed = connection.owed
        try:
            yield Do(connection.receive, (self._glance,))
        except self._overdue:
            if connection.owed == owed and connection.silent_for > PATIENCE:
                yield Do(connection.drop, ())
            return connection.owed < OWED
        except self._failures:
            yield Do(connection.drop, ())
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
                over = True  # after a last read, as connecting may have taken all of the time
            others = any(progress.pending.values())
            turn = self._glance if over else min(SLICE, until - now)
            for number, fresh in list(progress.pending.items()):
                limit = turn if fresh or not others else self._glance
                connection = self._connections[number]
                try:
                    if self._awaited:
                        answer = yield Do(connection.receive, (limit,))
                    else:
                        answer = connection.receive(limit)
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
        connection = self._connections[number]
        load = self._pack([("SCRIPT", "LOAD", progress.round.script.source)])
        try:
            yield Do(connection.send, (load, 1))
            yield Do(connection.send, (packed, len(progress.round.calls)))
        except self._failures as error:
            yield from self._give_up(progress, number, error)

    # -- failures ----------------------------------------------------------------------------------

    def _failed(
        self, progress: Progress, number: int, error: Exception, packed: bytes
    ) -> Flow[None]:
        """Ask once more, on a new connection, a node that has closed the one there was."""
        if progress.may_repeat(number, error):
            yield Do(self._connections[number].drop, ())
            progress.forget(number)
            yield from self._connect(progress, [number], packed)
        else:
            yield from self._give_up(progress, number, error)

    def _give_up(self, progress: Progress, number: int, error: Exception) -> Flow[None]:
        yield Do(self._connections[number].drop, ())
        self._cluster.fail(number, error)
        progress.got(number, error)

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, turn: Turn) -> Flow[bool]:
        """Block on one node; False when there is none to block on."""
        for number in waiting_nodes(self._cluster, turn.key):
            connection = self._connections[number]
            if connection.owed:
                continue
            packed = self._pack(turn.commands())
            try:
                if not connection.is_open:
                    yield Do(connection.connect, (turn.patience,))
                yield Do(connection.wait, (packed, turn.patience))
            except self._overdue as error:
                yield Do(connection.drop, ())
                if turn.is_whole:
                    self._cluster.fail(number, error)
            except self._failures:
                yield Do(connection.drop, ())
                return False  # the next attempt says what is the matter, if anything still is
            return True
        return False
