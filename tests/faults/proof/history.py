"""What was done: one JSON object a line, one file a process, nothing lost by `kill -9`.

A call is written down before it begins and after it ended, each with one unbuffered write. A call
without an end, of a process that was killed, may have been carried out or not.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Call", "HolderInfo", "Log", "read"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: from ``begin`` to ``end`` in seconds of the machine's monotonic clock.

    ``outcome``: ok, fail (certainly not carried out), or info (nobody knows; ``end`` is None then,
    for it may be carried out at any later time).
    """

    proc: str
    op: str
    name: str
    begin: float
    end: float | None
    outcome: str
    facts: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def token(self) -> int:
        """The fencing token that it was about; 0 if none."""
        return int(self.facts.get("token", 0))

    @property
    def owner(self) -> str:
        """The nonce of the grant that it was about."""
        return str(self.facts.get("owner", ""))


class HolderInfo:
    """What a call that is under way will have to say."""

    def __init__(self) -> None:
        self.outcome = "ok"
        self.facts: dict[str, Any] = {}

    def say(self, outcome: str, **facts: Any) -> None:
        """Set the outcome, and add facts."""
        self.outcome = outcome
        self.facts |= facts


class Log:
    """The file of one process."""

    def __init__(self, folder: Path, proc: str) -> None:
        self._proc = proc
        self._calls = itertools.count()
        path = folder / f"{proc}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @contextmanager
    def call(self, op: str, name: str, **facts: Any) -> Iterator[HolderInfo]:
        """Write a call down; an exception that leaves the block makes it one that nobody knows."""
        number = next(self._calls)
        self._write(number, op, "invoke", name, facts)
        note = HolderInfo()
        try:
            yield note
        except BaseException:
            note.say("info")
            raise
        finally:
            self._write(number, op, note.outcome, name, note.facts)

    def _write(self, call: int, op: str, phase: str, name: str, facts: dict[str, Any]) -> None:
        line = {"call": call, "op": op, "phase": phase, "name": name, "t": time.monotonic()}
        os.write(self._file, (json.dumps(line | facts) + "\n").encode())


_OWN = {"call", "op", "phase", "name", "t"}


def read(folder: Path) -> list[Call]:
    """Return the calls of all processes, by their beginning."""
    calls: list[Call] = []
    for path in sorted(folder.glob("*.jsonl")):
        calls += _of_one(path.stem, path.read_text().splitlines())
    return sorted(calls, key=lambda call: call.begin)


def _of_one(proc: str, lines: Iterable[str]) -> Iterator[Call]:
    begun: dict[int, dict[str, Any]] = {}
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # torn by a kill: only the last one can be
        if line["phase"] == "invoke":
            begun[line["call"]] = line
            continue
        first = begun.pop(line["call"])
        yield _call(proc, first, line)
    for first in begun.values():
        yield _call(proc, first, {"phase": "info"})


def _call(proc: str, first: dict[str, Any], last: dict[str, Any]) -> Call:
    facts = {key: value for key, value in (first | last).items() if key not in _OWN}
    unknown = last["phase"] == "info"
    end = None if unknown else last["t"]
    return Call(proc, first["op"], first["name"], first["t"], end, last["phase"], facts)
