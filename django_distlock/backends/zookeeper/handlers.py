"""What stands in the place of parts of kazoo: its threads, sockets and results.

kazoo's own results wake the waiters through a queue and another thread. These are told on the
thread that reads the socket, which is two changes of threads less for each round trip.
"""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from ...core.fork import after_fork
from ...core.threads import Mutex
from .options import Facts

__all__ = ["Batch", "handler"]


def handler(facts: Facts) -> Any:
    """Return kazoo's handler for threads, or for gevent where it has taken their place.

    It calls our watchers at once, who only wake a waiter, and knocks at no server for so long that
    no time is left for the others. ``said`` is what the last one that did not open said.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        from kazoo.handlers.gevent import SequentialGeventHandler as Handler
    else:
        from kazoo.handlers.threading import SequentialThreadingHandler as Handler

    class Ours(Handler):  # type: ignore[misc]
        said = ""

        def dispatch_callback(self, callback: Any) -> None:
            callback.func(*callback.args)

        def create_connection(
            self, address: tuple[str, int], hostname: str, timeout: float, **how: Any
        ) -> socket.socket:
            try:
                return connect(address, hostname, min(timeout, facts.patience), how)
            except OSError as error:
                self.said = f"{hostname}:{address[1]}: {error}"
                raise

    return Ours()


def connect(
    address: tuple[str, int], hostname: str, timeout: float, how: dict[str, Any]
) -> socket.socket:
    """Open a connection; kazoo's own way leaves a socket open when a server's TLS is not sound."""
    wire = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        if how.get("use_ssl"):
            context = ssl.create_default_context(cafile=how.get("ca"))
            context.check_hostname = bool(how.get("check_hostname"))
            if not how.get("verify_certs", True):
                context.verify_mode = ssl.CERT_NONE
            if how.get("certfile"):
                password = how.get("keyfile_password")
                context.load_cert_chain(how["certfile"], how.get("keyfile"), password)
            # Before it is connected: Python leaves one open that is cut off while it is wrapped.
            wire = context.wrap_socket(wire, server_hostname=hostname)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.settimeout(timeout)
        wire.connect(address)
    except BaseException:
        wire.close()
        raise
    return wire


_mutex = Mutex()


def _forget_parent() -> None:
    global _mutex
    _mutex = Mutex()  # a thread of the parent may have been inside


after_fork(_forget_parent)


class Answer:
    """Where kazoo leaves the answer to one request; it is told once, or twice when all fails."""

    __slots__ = ("_batch", "_number", "_told", "exception")

    def __init__(self, batch: Batch, number: int) -> None:
        self._batch = batch
        self._number = number
        self._told = False
        self.exception: Exception | None = None

    def set(self, value: Any = None) -> None:
        """Take an answer."""
        with _mutex:
            if self._told:
                return
            self._told = True
        self._batch.take(self._number, value)

    def set_exception(self, error: Exception) -> None:
        """Take an error, of the server or of the connection."""
        self.exception = error
        self.set(error)


class Batch:
    """The answers to requests sent together, in their order; errors among them as objects."""

    __slots__ = ("_done", "_left", "answers", "answers_due", "sent", "session")

    def __init__(
        self, count: int, sent: float, session: int | None, done: Callable[[Batch], None]
    ) -> None:
        self.sent = sent
        self.session = session
        self.answers_due = [Answer(self, number) for number in range(count)]
        self.answers: list[Any] = [None] * count
        self._left = count
        self._done = done

    def take(self, number: int, value: Any) -> None:
        """Note one answer; after the last one the waiter is told."""
        with _mutex:
            self.answers[number] = value
            self._left -= 1
            over = not self._left
        if over:
            self._done(self)
