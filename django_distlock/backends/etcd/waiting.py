"""Waiting for the one ahead in the line to go: its key alone is watched.

A watch that begins at an old revision is served by a loop of the server's that runs ten times a
second. So it begins at the present, and when it is known to have begun, the key is looked for once
more: it may have gone in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

from ...http import HttpError, Open, Read
from . import messages
from .asking import Asker, Operation
from .errors import EtcdError
from .places import Place

__all__ = ["wait_turn"]

Left = Callable[[], float]
"""Returns the seconds that are left of a turn."""


def wait_turn(asker: Asker, place: Place, left: Left, patience: float) -> Generator[Any, Any, bool]:
    """Return True when it may be the place's turn, or its time is up; False: cannot watch."""
    ahead = place.ahead
    try:
        if place.stream is None or place.watched != ahead:
            place.stop_watching()
            end = place.keys.end if ahead == place.keys.first else ""
            puts = bool(place.limit) and not end
            watch = asker.request(messages.watch(ahead, end, puts=puts))
            stream = yield Open(asker.http, watch, patience)
            place.watch(stream, ahead)
            _begun((yield Read(stream, patience)))
            # Under a limit what it waits for is not that one alone: it looks again.
            if place.limit or not (yield from _is_there(ahead)):
                return True
        while (more := left()) > 0 and (kept := place.stream) is not None:
            line = yield Read(kept, more)
            if line is not None and _tells(line):
                place.stop_watching()
                return True
    except (HttpError, EtcdError):
        place.stop_watching()
        return False
    return True


def _is_there(key: str) -> Operation[bool]:
    said = yield messages.exists([key])
    return bool(messages.key_of(said["responses"][0]["response_range"]))


def _begun(line: bytes | None) -> None:
    """See that a watch has begun."""
    if line is None or not json.loads(line).get("result", {}).get("created"):
        raise EtcdError(f"the watch was not begun: {line!r}")


def _tells(line: bytes) -> bool:
    """Return whether a line says that something happened; raise if the watch has ended."""
    said = json.loads(line)
    result = said.get("result", {})
    if "error" in said or result.get("canceled"):
        raise EtcdError(f"the watch has ended: {said}")
    return bool(result.get("events"))
