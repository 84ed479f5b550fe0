"""Waiting for the one ahead in the queue to go: its key alone is watched.

A watch that begins at an old revision is served by a loop of the server's that runs ten times a
second. So it begins at the present, and when it is known to have begun, the key is looked for once
more: it may have gone in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ...http import HttpError, Open, Read
from . import protocol
from .client import EtcdClient, Operation
from .entries import EtcdEntry
from .errors import EtcdError
from .protocol import Key

__all__ = ["Handed", "wait_turn"]

Left = Callable[[], float]
"""Returns the seconds that are left of a turn."""


class Handed(NamedTuple):
    """What was said of a key under which a slot has been written."""

    key: Key
    header: dict[str, Any]


def wait_turn(
    client: EtcdClient, entry: EtcdEntry, left: Left, patience: float
) -> Generator[Any, Any, bool | Handed]:
    """Return True when it may be the entry's turn, or its time is up; False: cannot watch.

    And what is told of its own key, when a slot has been written under it.
    """
    ahead = entry.ahead
    try:
        if entry.stream is None or entry.watched != ahead:
            entry.stop_watching()
            end = entry.keys.end if ahead == entry.keys.first else ""
            watch = client.request(protocol.watch(ahead, end, puts=bool(entry.limit)))
            stream = yield Open(client.http, watch, patience)
            entry.watch(stream, ahead)
            _begun((yield Read(stream, patience)))
            # Under a limit it waits for more than that one: it reads again.
            if entry.limit or not (yield from _is_there(ahead)):
                return True
        while (more := left()) > 0 and (kept := entry.stream) is not None:
            line = yield Read(kept, more)
            told = line is not None and _told(line, entry)
            if told:
                entry.stop_watching()
                return told
    except (HttpError, EtcdError):
        entry.stop_watching()
        return False
    return True


def _is_there(key: str) -> Operation[bool]:
    said = yield protocol.exists([key])
    return bool(protocol.key_of(said["responses"][0]["response_range"]))


def _begun(line: bytes | None) -> None:
    """See that a watch has begun."""
    if line is None or not json.loads(line).get("result", {}).get("created"):
        raise EtcdError(f"the watch was not begun: {line!r}")


def _told(line: bytes, entry: EtcdEntry) -> bool | Handed:
    """Return whether a line says that something happened that may make it the entry's turn.

    Or what it says of the entry's own key. Raises if the watch has ended.
    """
    said = json.loads(line)
    result = said.get("result", {})
    if "error" in said or result.get("canceled"):
        raise EtcdError(f"the watch has ended: {said}")
    events = result.get("events", ())
    if not entry.limit or entry.watched != entry.keys.first:
        return bool(events)
    for event in events:
        if event["kv"]["key"] == entry.keys.own and event.get("type") != "DELETE":
            return Handed(protocol.Key.read(event["kv"]), result["header"])
    return any(event.get("type") == "DELETE" for event in events)
