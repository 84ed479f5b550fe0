"""A connection to one node, which may owe answers."""

from __future__ import annotations

import time
from typing import Any

from ..redis.connection import Connection, sound
from .nodes import Node

__all__ = ["SLICE", "NodeConnection"]

SLICE = 0.005
"""Seconds for one node, after which the others are read."""


class NodeConnection:
    """A connection to one node."""

    def __init__(self, node: Node, limit: float) -> None:
        self._connection = Connection(node.target, limit)
        self.pack = self._connection.pack
        self.owed = 0
        self._since = 0.0
        self._expected = 0
        self._got: list[Any] = []

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._connection.is_open

    @property
    def silent_for(self) -> float:
        """For how long it has owed an answer."""
        return time.monotonic() - self._since if self.owed else 0.0

    def connect(self, limit: float) -> None:
        """Open it."""
        self.owed = 0
        self._connection.open(limit)
        self._connection.limit_to(SLICE)  # the time of most reads, which then need not set it

    def send(self, packed: bytes, expected: int) -> None:
        """Send what will have so many answers."""
        self._connection.write(packed)
        if not self.owed:
            self._since = time.monotonic()
        self.owed += expected
        self._expected, self._got = expected, []

    def receive(self, limit: float) -> list[Any]:
        """Return the answers to what was sent last; raise TimeoutError while some are missing."""
        while self.owed:
            answer = self._connection.read(limit)
            self.owed -= 1
            if self.owed < self._expected:
                self._got.append(answer)
        return self._got

    def wait(self, packed: bytes, limit: float) -> None:
        """Block until the node has answered both to the mark of a waiter and to its wait."""
        self._connection.write(packed)
        self._connection.read(limit)  # an error, of a node whose memory is full, costs a hint
        sound(self._connection.read(limit))

    def drop(self) -> None:
        """Close it."""
        self._connection.drop()
        self.owed = 0
