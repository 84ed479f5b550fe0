"""The session of this process with the servers: its client, and how long it surely lives."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ...core import threads
from ...core.clock import Clock, Deadline
from ...core.fork import park
from ...core.threads import Event, Mutex
from ...core.worker import begin
from .errors import LeftOutError, NoAnswerError, NotLetInError
from .handlers import Batch, handler
from .options import Facts
from .requests import through_leader

__all__ = ["ZooKeeperSession"]

logger = logging.getLogger("django_distlock.zookeeper")

# A share of the session's timeout. A server tells its leader whom it has heard of every half a
# tick, and a session lasts for two ticks at least (minSessionTimeout): what we sent so long before
# an answer that came through the leader, the leader knows of.
LAG = 0.25
# A share of it, too: when what is sure is so old we connect again, of which the leader learns.
DOUBT = 0.8
ALGORITHM = 40  # of a timeout, which are told apart
SURPLUS = 8  # bytes that may make up for those that interruptions have cost, each time
CLOSING = 2.0  # seconds that closing waits for the servers


class ZooKeeperSession:
    """One client of kazoo, opened when it is needed, and followed by another when it is over."""

    def __init__(self, alias: str, facts: Facts, clock: Clock, changed: Callable[[], None]) -> None:
        self._alias = alias
        self._facts = facts
        self._clock = clock
        self._changed = changed
        self.timeout = facts.timeout
        self.id: int | None = None
        self._reset()

    def _reset(self) -> None:
        self._mutex = Mutex()
        self._up = threads.Event()
        self._settled = threads.Event()  # it is up, or kazoo has given up
        self._client: Any = None
        self._over = ""  # why kazoo has given up, as when it is not let in
        self._cut_at = -math.inf
        self._closed = False
        self.id = None
        self._sure = -math.inf
        self.last = -math.inf  # when what the leader answered last had been sent
        self._touches: deque[float] = deque()  # when what was answered since then had been sent

    # -- how long it surely lives --------------------------------------------------------------

    def heard(self, sent: float) -> None:
        """Note that the leader answered to what was sent at ``sent``, by the clock.

        What the leader is sure to know of is what we had sent some time before.
        """
        known = sent - LAG * self.timeout
        with self._mutex:
            touches = self._touches
            self.last = max(self.last, sent)
            if not touches or sent >= touches[-1] + self.timeout / ALGORITHM:
                touches.append(sent)
            while touches[0] <= known:
                self._sure = max(self._sure, touches.popleft())

    def sure_until(self, session: int | None) -> float:
        """Return until when, by the clock, the servers are sure to keep a session of this id."""
        if session is None or session != self.id:
            return -math.inf
        return self._sure + self.timeout * 0.99 - 0.002

    def doubtful(self) -> bool:
        """Return whether nothing was heard for so long that the session may be near its end."""
        # A connection that was given up has a while to be followed by another.
        since = max(self._sure, self._cut_at)
        return self._clock() - since > DOUBT * self.timeout

    # -- the client -------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    def open(self) -> None:
        """Begin to connect, unless that was done."""
        if self._client is not None and not self._over:
            return
        with self._mutex:
            if self._closed:
                raise NoAnswerError("the alias was closed")
            if self._client is not None and self._over:
                self._end(self._client)
                self._client = None
            if self._client is None:
                self._over = ""
                self._settled.clear()
                self._client = self._make()
                self._client.start_async()

    def _make(self) -> Any:
        from kazoo.client import KazooClient

        threads = handler(self._facts)
        retry = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 1.0}
        client = KazooClient(
            hosts=self._facts.hosts,
            timeout=self._facts.timeout,
            handler=threads,
            connection_retry={**retry, "sleep_func": threads.sleep_func},
            **self._facts.client,
        )
        client.add_listener(lambda state: self._heard_of(client, state))
        self._refine(client)
        return client

    def _refine(self, client: Any) -> None:
        """Have kazoo tell what it does not by itself, and bear what it does not."""
        from kazoo.exceptions import ConnectionDropped

        wire = client._connection
        connect, invoke, read = wire._connect, wire._invoke, wire._read_socket
        look_up = wire._expand_client_hosts

        def found() -> Any:
            addresses = look_up()
            unknown = {host for host, _ in client.hosts} - {host for host, *_ in addresses}
            if unknown:
                client.handler.said = f"no address is known of {', '.join(sorted(unknown))}"
            return addresses

        def limited(limit: float, *words: Any, **more: Any) -> Any:
            return invoke(min(limit, self._facts.patience), *words, **more)

        def dial(*where: Any) -> Any:
            began = self._clock()
            limits = connect(*where)
            self._connected(client, began, limits[0] * 1.5 / 1000)
            return limits

        def reading(limit: float) -> Any:
            try:
                return read(limit)
            except RuntimeError as error:
                # A server that loses its leader may leave a request out; kazoo would give up.
                raise ConnectionDropped(f"an answer was left out: {error}") from error

        wire._expand_client_hosts = found
        # Which timeout the servers agreed to, and when they were asked.
        wire._connect = dial
        wire._invoke = limited  # it is only used while a connection is made
        wire._read_socket = reading

    def _connected(self, client: Any, began: float, timeout: float) -> None:
        identity = client.client_id
        if client is not self._client or identity is None:
            return
        self.timeout = timeout
        self.id = identity[0]
        # A server that takes a session up asks the leader, which counts again from then on.
        with self._mutex:
            self._sure = began
            self._touches.clear()
        self._up.set()
        self._settled.set()
        self._changed()

    def _heard_of(self, client: Any, state: str) -> None:
        """Note a change of the connection; on kazoo's thread, which must not wait for anything."""
        if client is not self._client or state == "CONNECTED":
            return
        self._settled.clear()
        self._up.clear()
        if state == "LOST":
            self.id = None
            if client.client_state in ("AUTH_FAILED", "CLOSED"):
                self._over = client.client_state
                self._settled.set()
        self._changed()

    def _end(self, client: Any) -> None:
        """Say goodbye, for a while; a server that hangs is not waited for."""

        def end() -> None:
            try:
                client.stop()
                client.close()
            except Exception as error:  # noqa: BLE001 - kazoo's own, of many kinds
                logger.warning("Closing a client of alias %r failed: %s", self._alias, error)

        thread = threading.Thread(target=end, name=f"distlock-{self._alias}_end", daemon=True)
        if begin(thread) is not None:
            thread.join(CLOSING)
        else:  # the interpreter ends
            client._session_timeout = CLOSING * 1000  # for which kazoo waits for the answer
            end()

    def close(self) -> None:
        """Say goodbye to the servers, which frees all that is held."""
        with self._mutex:
            self._closed = True
            client, self._client = self._client, None
        self._settled.clear()
        self._up.clear()
        self.id = None
        if client is not None:
            self._end(client)

    def forget_parent(self) -> None:
        """Leave the parent's client to the parent, in a forked child."""
        if self._client is not None:
            atexit.unregister(self._client.handler.stop)
            park(self._client)  # closing it would end the parent's session
        self._reset()

    def cut(self) -> None:
        """Give a connection up on which no answers come, for one to another server.

        kazoo does so when its own small questions are not answered, but asks none while others do.
        """
        client = self._client
        wire = client._connection._socket if client is not None else None
        if wire is None or not self._up.is_set():
            return
        with self._mutex:
            # Unless kazoo has connected again meanwhile, which it tells once only.
            mine = client is self._client and client._connection._socket is wire
            if mine:
                self._cut_at = self._clock()
                self._settled.clear()
                self._up.clear()
        if mine:
            with contextlib.suppress(OSError):  # closed at this moment
                wire.shutdown(socket.SHUT_RDWR)

    # -- asking ----------------------------------------------------------------------------------

    def send(self, requests: Sequence[Any], done: Callable[[Batch], None]) -> Batch:
        """Send requests now; ``done`` is told when all are answered, or lost."""
        batch = Batch(len(requests), self._clock(), self.id, done)
        client = self._client
        if client is None:
            raise NoAnswerError("the alias was closed")
        if client._state in ("AUTH_FAILED", "CLOSED", "EXPIRED_SESSION"):
            for request, due in zip(requests, batch.answers_due, strict=True):
                client._call(request, due)  # which says why it cannot be asked
            return batch
        # As `_call` does it, which swallows an interruption, and after it sends each request only
        # when the next one comes: kazoo's thread takes one request for each byte that wakes it.
        # Surplus bytes do no harm, but must not fill the socket while the queue is long.
        client._queue.extend(zip(requests, batch.answers_due, strict=True))
        try:
            wakes = min(len(client._queue), len(requests) + SURPLUS)
            client._connection._write_sock.send(bytes(max(1, wakes)))
        except (OSError, AttributeError):  # it is being closed
            from kazoo.exceptions import ConnectionClosedError

            for due in batch.answers_due:
                due.set_exception(ConnectionClosedError("the connection was closed"))
        return batch

    def ask(self, requests: Sequence[Any], limit: float) -> list[Any]:
        """Return the answers, errors of the servers among them as objects.

        Raises what kazoo calls the loss of the connection or the session, and NoAnswerError when
        there is no connection or no answer in ``limit`` seconds.
        """
        deadline = Deadline(self._clock() + limit, self._clock)
        if self.doubtful():
            self.cut()
        if not self._up.is_set():
            self.open()
            if not self._settled.wait(limit) or self._over:
                raise self._no_connection(limit)
        told = Event()
        batch = self.send(requests, lambda _: told.set())
        while not told.wait(deadline.left()):
            if not deadline.put_off():
                raise NoAnswerError(f"no answer in {max(limit, 0):.1f} s")
        return self._judged(batch, requests)

    async def aask(self, requests: Sequence[Any], limit: float) -> list[Any]:
        """Ask as `ask`, on the event loop."""
        deadline = Deadline(self._clock() + limit, self._clock)
        if self.doubtful():
            self.cut()
        if not self._up.is_set():
            self.open()
            while not self._settled.is_set() or self._over:
                if not deadline.left() or self._over:
                    raise self._no_connection(limit)
                await asyncio.sleep(0.01)
        told = Event()
        batch = self.send(requests, lambda _: told.set())
        while not await told.await_set(deadline.left()):
            if not deadline.put_off():
                raise NoAnswerError(f"no answer in {max(limit, 0):.1f} s")
        return self._judged(batch, requests)

    def _no_connection(self, limit: float) -> Exception:
        client = self._client
        if self._over:
            return NotLetInError(f"the client has given up: {self._over}")
        said = f": {client.handler.said}" if client is not None and client.handler.said else ""
        hosts = self._facts.hosts
        return NoAnswerError(f"no connection to {hosts} in {max(limit, 0):.1f} s{said}")

    def _judged(self, batch: Batch, requests: Sequence[Any]) -> list[Any]:
        for answer in batch.answers:
            if isinstance(answer, RuntimeError):
                raise LeftOutError(f"a server left an answer out: {answer}")
            if isinstance(answer, Exception) and is_cut(answer):
                raise type(answer)(*answer.args)  # which all who asked are given
        self.count(batch, requests)
        return batch.answers

    def count(self, batch: Batch, requests: Sequence[Any]) -> None:
        """Note that the session lived when an answered batch was sent."""
        if batch.session == self.id and batch.session is not None:
            leaders = through_leader()
            if any(request.type in leaders for request in requests):
                self.heard(batch.sent)


def is_cut(error: Exception) -> bool:
    """Return whether an error says nothing of the request but that its answer is lost."""
    from kazoo import exceptions as kinds

    return isinstance(
        error,
        kinds.ConnectionLoss
        | kinds.SessionExpiredError
        | kinds.ConnectionClosedError
        | kinds.OperationTimeoutError
        | kinds.AuthFailedError,
    )
