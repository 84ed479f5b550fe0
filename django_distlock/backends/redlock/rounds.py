"""A question to the nodes, and their answers: what `algorithm.py` asks and the pools carry out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from .scripts import Script

__all__ = [
    "Answer",
    "Answers",
    "NotAskedError",
    "Operation",
    "QuorumError",
    "Round",
    "waiting_node",
]

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
