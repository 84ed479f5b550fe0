"""The answers to requests that were sent together, and what waits for them.

kazoo's own results wake the waiters through a queue and another thread. These are told on the
thread that reads the socket, which is two changes of threads less for each round trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.fork import after_fork
from ...core.threads import Mutex

__all__ = ["Batch"]

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
