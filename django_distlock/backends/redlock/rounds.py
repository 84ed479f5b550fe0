"""What the nodes are asked: a round of scripts, their answers, and the value that a node stores.

`algorithm.py` asks it, and the pools carry it out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias, TypeVar

from ...core.names import unreadable
from ..redis.commands import source_of

__all__ = [
    "Answer",
    "Answers",
    "NotAskedError",
    "Operation",
    "QuorumError",
    "Round",
    "Script",
    "Value",
    "digest",
    "script",
    "waiting_node",
]


@dataclass(frozen=True, slots=True)
class Script:
    """A script by its name, as it is sent."""

    name: str
    source: str = field(repr=False)
    digest: str = field(repr=False)


@cache
def script(name: str) -> Script:
    """Return the script of that name, read once."""
    source = source_of(__package__, name)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def digest(owner: str) -> str:
    """Return by what an owner is known to its rivals."""
    return hashlib.sha1(owner.encode(), usedforsecurity=False).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Value:
    """What a node has stored of a held lock, see `acquire.lua`."""

    token: int
    acquired: int
    owner: str
    name: str
    note: str

    @classmethod
    def of(cls, raw: bytes) -> Value | None:
        """Read a value; None when it is not one of ours."""
        head, text = raw[:45], raw[61:].decode("utf-8", "surrogateescape")
        owner, _, rest = text.partition("\n")
        name, _, note = rest.partition("\n")
        if len(head) != 45 or not head.isdigit() or not owner:
            return None
        return cls(int(head[13:29]), int(head[29:]), owner, unreadable(name), note)


T = TypeVar("T")

Answer: TypeAlias = "list[Any] | Exception | None"
Answers: TypeAlias = "list[Answer]"
"""By node: its answers to the calls of a round, the error instead of them, or None when not asked.

Errors that the server answered with are among the answers, in the place of one.
"""
Operation: TypeAlias = Generator["Round", Answers, T]


class NotAskedError(Exception):
    """The node was not asked: it has not answered before, and the others are enough."""


class QuorumError(Exception):
    """No quorum of the nodes could answer; says what each one did."""


def waiting_node(key: str) -> int:
    """Return the node, counted round, at which those wait who want the lock of a key."""
    return int(key[-8:], 16)


def _undecided(answers: Answers) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Round:
    """One question to the nodes: a script, and what it is called with, once or many times.

    All ``nodes`` (by number; None: all) are asked at the same time. Answers are awaited for
    ``limit`` seconds; once ``decided`` says so, those to come are not. ``insist``: ask those too
    that are known to be down.
    """

    script: Script
    calls: Sequence[tuple[Any, ...]]
    limit: float
    decided: Callable[[Answers], bool] = _undecided
    nodes: Sequence[int] | None = None
    insist: bool = False
    patient: bool = True
    """Whether to wait for nodes that owe answers; an undoing need not be seen done."""
    after: float = 0.0
    """Seconds to wait before asking."""
    last: int = -1
    """Which node is asked last, counted round: its waiters are woken when all were told."""
    keys: int = 2
    """How many of each call's words are keys."""

    def commands(self) -> list[tuple[Any, ...]]:
        """Return what is sent to each node."""
        return [("EVALSHA", self.script.digest, self.keys, *words) for words in self.calls]
