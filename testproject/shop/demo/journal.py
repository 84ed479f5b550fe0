"""What a worker writes down while it works: JSON lines in a file of its own.

Times are nanoseconds of the monotonic clock, which is one and the same for all processes of a
machine. Every line is written at once, so a killed worker leaves all it did behind.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

READY = "ready"  # connected, and waits for the start
ASKED = "asked"  # asks for the lock for the first time
HELD = "held"  # holds the lock, and will not let it go
TURN = "turn"  # had the lock once
DONE = "done"  # finds nothing left to buy


def now() -> int:
    """Return the time, comparable between the processes of one machine."""
    return time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class Turn:
    """One hold of the lock: when it was asked for, granted, and about to be released.

    `reference` is the order the worker was told of, or None when it found the stock empty; `slot`
    is the one that it held of a lock with a limit.
    """

    worker: int
    asked: int
    granted: int
    released: int
    reference: str | None
    slot: int | None = None


class Journal:
    """Write events to a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def event(self, kind: str, **details: Any) -> None:
        """Write down that something happened now."""
        self._file.write(json.dumps({"event": kind, "at": now(), **details}) + "\n")

    def turn(self, turn: Turn) -> None:
        """Write down a turn that has ended."""
        self.event(TURN, **asdict(turn))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Reader:
    """Follow the journal of a worker that is still writing it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.turns: list[Turn] = []
        self.events: dict[str, int] = {}

    def refresh(self) -> None:
        """Read what was added since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, record: dict[str, Any]) -> None:
        kind, at = record.pop("event"), record.pop("at")
        if kind == TURN:
            self.turns.append(Turn(**record))
        else:
            self.events.setdefault(kind, at)
