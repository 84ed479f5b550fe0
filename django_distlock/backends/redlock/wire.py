"""A connection to one node, which may owe answers."""

from __future__ import annotations

import time
from typing import Any

from .nodes import Node
from .stream import Stream, stream

__all__ = ["SLICE", "Wire"]

SLICE = 0.005
"""Seconds for one node, after which the others are looked at."""


class Wire:
    """A connection to one node."""

    def __init__(self, node: Node, limit: float) -> None:
        from redis import exceptions

        self.connection: Any = node.place.connection(limit)
        self._kind = node.place.kind
        self._stream: Stream | None = None
        self._error = exceptions.ResponseError
        self.owed = 0
        self._since = 0.0
        self._expected = 0
        self._got: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._stream is not None or bool(self.connection.is_connected)

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
        self._stream = stream(connection, self._kind)

    def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        self._send(packed)
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        read = self._read if self._stream is None else self._stream.read
        while self.owed:
            answer = read(limit)
            self.owed -= 1
            if self.owed < self._expected:
                self._got.append(answer)
        return self._got

    def wait(self, packed: bytes, limit: float) -> None:
        """Block until the node has answered both to the note of a waiter and to its wait."""
        self._send(packed)
        self._read(limit)  # an error, of a node whose memory is full, costs a hint
        if isinstance(answer := self._read(limit), self._error):
            raise answer

    def _send(self, packed: bytes) -> None:
        if self._stream is not None:
            self._stream.send(packed, SLICE)
        else:
            self.connection.send_packed_command([packed], check_health=False)

    def _read(self, limit: float) -> Any:
        if self._stream is not None:
            return self._stream.read(limit)
        try:
            if limit == SLICE:
                return self.connection.read_response(disconnect_on_error=False)
            return self.connection.read_response(timeout=limit, disconnect_on_error=False)
        except self._error as error:
            return error

    def drop(self) -> None:
        """Close it."""
        self._stream = None
        self.connection.disconnect()
        self.owed = 0
