"""A small TCP proxy that does to a connection what a network may do, when a test says so."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self, TypeVar

from tests.servers.base import HOST

T = TypeVar("T")

Then = Literal["reset", "close", "hang", "go on"]
PATIENCE = 10.0


@dataclass(eq=False)
class Fault:
    """What happens once: to a request that contains ``at``, or to the answer of one.

    ``keep`` bytes of it get through, and the rest does not. ``then`` the connection is reset or
    closed, hangs without a word, or goes on as if nothing was. ``happened`` is set after that.
    """

    at: bytes
    to: Literal["request", "answer"]
    keep: int
    then: Then
    happened: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until it has happened."""
        if not self.happened.wait(PATIENCE):
            raise AssertionError(f"the {self.to} with {self.at!r} did not come by")


@dataclass(eq=False)
class Link:
    """One connection through the proxy."""

    client: socket.socket
    server: socket.socket
    to_come: Fault | None = None
    hangs: bool = False

    def other(self, end: socket.socket) -> socket.socket:
        """Return the end that is not ``end``."""
        return self.server if end is self.client else self.client


class Proxy:
    """Stands before a server of this machine; one thread moves all the bytes.

    Every method returns when it has taken effect. `mend` ends all that was done but faults that
    have not happened yet. It listens at an address of this machine.
    """

    def __init__(self, port: int, host: str = HOST, *, at: str = HOST) -> None:
        self.target = (host, port)
        self.host = at
        self.port = 0
        self.accepted = 0
        self._delay = 0.0
        self._silent = False
        self._faults: list[Fault] = []
        self._links: dict[socket.socket, Link] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._jobs: list[Callable[[], None]] = []
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._wake, self._woken = socket.socketpair()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    # -- what a test does ------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._listen()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._do(self._end)
        self._thread.join(PATIENCE)

    def fault(
        self,
        at: bytes,
        *,
        to: Literal["request", "answer"] = "answer",
        keep: int = 0,
        then: Then = "reset",
    ) -> Fault:
        """Prepare what happens to the next request that contains ``at``, or to its answer."""
        fault = Fault(at, to, keep, then)
        self._do(lambda: self._faults.append(fault))
        return fault

    def cut(self) -> None:
        """Refuse new connections and close all that there are."""
        self._do(self._cut)

    def reset(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._do(lambda: self._drop_all("reset"))

    def half_close(self) -> None:
        """Tell the clients that the server says no more, and go on reading what they say."""
        self._do(self._half_close)

    def silence(self) -> None:
        """Pass nothing on in either direction, and keep it."""
        self._do(lambda: setattr(self, "_silent", True))

    def forget(self) -> None:
        """Pass nothing on any more over the connections that there are; new ones are accepted."""
        self._do(self._forget)

    def delay(self, seconds: float) -> None:
        """Pass every answer on so much later."""
        self._do(lambda: setattr(self, "_delay", seconds))

    def mend(self) -> None:
        """Be a proxy as it should be."""
        self._do(self._mend)

    @property
    def open(self) -> int:
        """How many connections there are now."""
        return self._do(lambda: len(self._links) // 2)

    # -- on the proxy's thread -------------------------------------------------------------------

    def _do(self, work: Callable[[], T]) -> T:
        """Have the thread do something, and return what that returned."""
        done, answers = threading.Event(), list[T]()

        def job() -> None:
            try:
                answers.append(work())
            finally:
                done.set()

        self._jobs.append(job)
        self._wake.send(b"!")
        if not done.wait(PATIENCE):
            raise AssertionError("the proxy does not answer")
        return answers[0]

    def _run(self) -> None:
        while not self._ending:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            ready = [key.fileobj for key, _ in self._selector.select(wait)]
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            for end in ready:
                assert isinstance(end, socket.socket)
                if end is self._woken:
                    end.recv(4096)
                    while self._jobs:
                        self._jobs.pop(0)()
                elif end is self._listener:
                    self._accept(end)
                elif end in self._links and not self._silent:
                    self._read(self._links[end], end)
            if self._silent:
                self._wait_in_silence()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _wait_in_silence(self) -> None:
        """Look at nothing but what the test says; what the ends say stays in their sockets."""
        while self._silent and not self._ending:
            self._woken.recv(4096)
            while self._jobs:
                self._jobs.pop(0)()

    def _listen(self) -> None:
        self._listener = socket.create_server((self.host, self.port), backlog=128)
        self.port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self.accepted += 1
        try:
            server = socket.create_connection(self.target, PATIENCE)
        except OSError:
            client.close()
            return
        link = Link(client, server)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(PATIENCE)
            self._links[end] = link
            self._selector.register(end, selectors.EVENT_READ)

    def _read(self, link: Link, end: socket.socket) -> None:
        try:
            chunk = end.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(link, "close")
        elif link.hangs:
            pass
        elif end is link.client:
            self._request(link, chunk)
        elif self._delay:
            due = time.monotonic() + self._delay
            heapq.heappush(self._due, (due, next(self._order), lambda: self._answer(link, chunk)))
        else:
            self._answer(link, chunk)

    def _request(self, link: Link, chunk: bytes) -> None:
        fault = next((each for each in self._faults if each.at in chunk), None)
        if fault is not None:
            self._faults.remove(fault)
            if fault.to == "request":
                self._send(link, link.server, chunk[: fault.keep])
                self._happen(link, fault)
                return
            link.to_come = fault
        self._send(link, link.server, chunk)

    def _answer(self, link: Link, chunk: bytes) -> None:
        fault, link.to_come = link.to_come, None
        if fault is None:
            self._send(link, link.client, chunk)
        else:
            self._send(link, link.client, chunk[: fault.keep])
            self._happen(link, fault)

    def _happen(self, link: Link, fault: Fault) -> None:
        if fault.then == "hang":
            link.hangs = True
        elif fault.then != "go on":
            self._drop(link, fault.then)
        fault.happened.set()

    def _send(self, link: Link, end: socket.socket, chunk: bytes) -> None:
        if chunk and end in self._links:
            try:
                end.sendall(chunk)
            except OSError:
                self._drop(link, "close")

    def _drop(self, link: Link, how: Then) -> None:
        for end in (link.client, link.server):
            if self._links.pop(end, None) is None:
                continue
            self._selector.unregister(end)
            if how == "reset":  # no lingering: RST instead of FIN
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    def _drop_all(self, how: Then) -> None:
        for link in set(self._links.values()):
            self._drop(link, how)

    def _forget(self) -> None:
        for link in set(self._links.values()):
            link.hangs = True

    def _half_close(self) -> None:
        for link in set(self._links.values()):
            with suppress(OSError):
                link.client.shutdown(socket.SHUT_WR)

    def _cut(self) -> None:
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        self._drop_all("close")

    def _mend(self) -> None:
        self._delay, self._silent = 0.0, False
        if self._listener is None:
            self._listen()
        for link in set(self._links.values()):
            if link.hangs:
                self._drop(link, "close")

    def _end(self) -> None:
        self._ending = True
        self._cut()
