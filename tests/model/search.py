"""Searching all that can happen: every state that some order of events leads to, once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Found", "search"]

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Found(Generic[S]):
    """What a search came to."""

    states: int
    """How many there are."""
    ends: int
    """In how many of them nothing can happen any more."""
    wrong: str = ""
    """What is wrong in the first state that is."""
    path: tuple[str, ...] = ()
    """The events that lead there: no other way is shorter."""


def search(
    start: S,
    events: Callable[[S], Iterable[tuple[str, S]]],
    judge: Callable[[S, bool], str],
    *,
    most: int = 1_000_000,
) -> Found[S]:
    """Visit all states from ``start`` on, those that take fewer events first.

    ``events`` returns what can happen in a state: what it is called, and the state after it.
    ``judge`` is given a state and whether it is an end, and returns what is wrong with it; the
    search ends there. Raises RuntimeError beyond ``most`` states: the model is too large.
    """
    came_by: dict[S, tuple[S, str] | None] = {start: None}
    waiting = deque([start])
    ends = 0
    while waiting:
        state = waiting.popleft()
        following = list(events(state))
        ends += not following
        if wrong := judge(state, not following):
            return Found(len(came_by), ends, wrong, _path(came_by, state))
        for name, after in following:
            if after not in came_by:
                came_by[after] = state, name
                waiting.append(after)
        if len(came_by) > most:
            raise RuntimeError(f"more than {most} states")
    return Found(len(came_by), ends)


def _path(came_by: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    events = []
    while (before := came_by[state]) is not None:
        state, name = before
        events.append(name)
    return tuple(reversed(events))
