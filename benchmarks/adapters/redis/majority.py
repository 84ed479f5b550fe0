"""Locks on a majority of five servers: by bare sockets, and by other libraries."""

from __future__ import annotations

import random
import time
from typing import Any

from ...adapter import Adapter
from .alternatives import Pottery, RedlockNg
from .wire import COMPARE_AND_DELETE, Wire, acquiring, packed, releasing, token, urls

__all__ = ["BareSockets", "PotteryMajority", "RedlockNgMajority"]

PAUSES = (0.001, 0.005)  # seconds, between which a pause is chosen


class BareSockets(Adapter):
    """Sent to all, then read from all: no limits, no clock, no token that rises."""

    name = "bare sockets"
    kind = "baseline"
    backend = "redlock"

    def open(self) -> None:
        """Connect to all, and let each know the script."""
        self._wires = [Wire(url) for url in urls()]
        self._majority = len(self._wires) // 2 + 1
        for wire in self._wires:
            wire.ask(packed(b"SCRIPT", b"LOAD", COMPARE_AND_DELETE))

    def close(self) -> None:
        """Close the sockets."""
        for wire in self._wires:
            wire.close()

    def acquire(self, key: str) -> Any:
        """Attempt again after a pause by chance."""
        while True:
            handle = self.try_acquire(key)
            if handle is not None:
                return handle
            time.sleep(random.uniform(*PAUSES))

    def try_acquire(self, key: str) -> Any:
        """Set the key where it is not; undone on all when that is not the majority."""
        name, value = key.encode(), token()
        if self._ask(acquiring(name, value)).count(b"+OK\r\n") >= self._majority:
            return name, value
        self._ask(releasing(name, value))
        return None

    def release(self, handle: Any) -> None:
        """Delete the key where it is ours."""
        assert self._ask(releasing(*handle)).count(b":1\r\n") >= self._majority

    def _ask(self, command: bytes) -> list[bytes]:
        for wire in self._wires:
            wire.send(command)
        return [wire.receive() for wire in self._wires]


class RedlockNgMajority(RedlockNg):
    """redlock-ng with five servers, one after another."""

    backend = "redlock"


class PotteryMajority(Pottery):
    """pottery's Redlock with five servers, each asked by a thread."""

    backend = "redlock"

    def open(self) -> None:
        """Connect to all."""
        from redis import Redis

        super().open()
        self._client.close()
        self._masters = {Redis.from_url(url) for url in urls()}

    def close(self) -> None:
        """Disconnect from all."""
        for client in self._masters:
            client.close()
