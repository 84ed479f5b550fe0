"""A stream of measurements, made of what the signals tell, for whatever collects metrics.

Nothing is measured without a listener. A measurement carries the *label* of its lock, which is
one of a few, and never its name, of which there may be millions: each would be a time series.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import signals
from .core import registry
from .core.text import shown
from .signals import (
    Tell,
    lock_acquired,
    lock_contended,
    lock_failed,
    lock_force_released,
    lock_released,
)

__all__ = ["MOST_LABELS", "OTHER", "Listener", "Measurement", "held_now", "listen"]

logger = logging.getLogger("django_distlock")

OTHER = "(other)"
"""The label of locks that have none of their own: those named by hand without ``label=``."""
MOST_LABELS = 500
"""Labels of a process; what comes after them is `OTHER`, so that a mistake costs no memory."""

What = Literal["acquire", "attach", "hold", "renew", "release", "force"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What has ended, its ``outcome``, and the ``seconds`` that go with it.

    - ``"acquire"``, ``"granted"``, ``"contended"`` or ``"failed"``: waited.
    - ``"attach"``, ``"attached"``: None.
    - ``"hold"``, ``"released"``, ``"lost"``, ``"detached"`` or ``"abandoned"``: held.
    - ``"renew"``, ``"renewed"``: until the new deadline. ``"failed"``: None.
    - ``"release"``, ``"failed"``: None.
    - ``"force"``, ``"forced"``: None.

    ``hold`` is the same object at the beginning and at the end of a hold, for nothing but telling
    holds apart. ``name`` is the lock's, for traces and logs. ``reason`` says why, where it failed.
    """

    what: What
    outcome: str
    alias: str
    label: str
    seconds: float | None = None
    name: str = field(default="", repr=False)
    reason: str = ""
    hold: object = field(default=None, repr=False)


Listener = Callable[[Measurement], None]

_listeners: list[Listener] = []
_labels: dict[str, str] = {}


def listen(listener: Listener) -> Callable[[], None]:
    """Have ``listener`` called with each Measurement; return a function that ends it.

    In the thread or task that acquires or releases, also on an event loop's thread, so it must not
    block; and on a thread of ours for what happens in the background. What it raises is logged.
    """
    _listeners.append(listener)
    if _translate not in signals.listeners:
        signals.listeners.append(_translate)

    def stop() -> None:
        if listener in _listeners:
            _listeners.remove(listener)
        if not _listeners and _translate in signals.listeners:
            signals.listeners.remove(_translate)

    return stop


def held_now() -> Mapping[tuple[str, str], int]:
    """Return how many leases this process holds, by alias and label."""
    return Counter((hold.backend.alias, label_of(hold.label)) for hold in registry.every())


def label_of(label: str | None) -> str:
    """Return the label to count a lock under: its own as long as there are not too many."""
    if label is None:
        return OTHER
    if (known := _labels.get(label)) is not None:
        return known
    if len(_labels) >= MOST_LABELS:
        if OTHER not in _labels:
            _labels[OTHER] = OTHER
            logger.warning(
                "More than %d labels of locks: %.200r and those that follow are counted as %s. Is "
                "a name built before it is given to a decorator, or an id in a label?",
                MOST_LABELS,
                label,
                OTHER,
            )
        return OTHER
    return _labels.setdefault(label, shown(label))


def _kind(tell: Tell) -> tuple[Any, str, str | None] | None:
    """Return what is measured, its outcome, and which of the facts are the seconds."""
    signal, facts = tell.signal, tell.facts
    if signal is None:
        return "renew", "renewed", "deadline_in"
    if signal is lock_acquired:
        return (
            ("attach", "attached", None) if facts["attached"] else ("acquire", "granted", "waited")
        )
    if signal is lock_contended:
        return "acquire", "contended", "waited"
    if signal is lock_released:
        return "hold", facts["outcome"], "held_for"
    if signal is lock_failed:
        return facts["action"], "failed", "waited"
    if signal is lock_force_released:
        return "force", "forced", None
    return None  # a signal of another package


def _translate(tell: Tell) -> None:
    facts, kind = tell.facts, _kind(tell)
    if kind is None:
        return
    what, outcome, seconds = kind
    measurement = Measurement(
        what,
        outcome,
        tell.alias,
        label_of(tell.label),
        None if seconds is None else facts[seconds],
        facts["name"],
        facts.get("reason", ""),
        tell.hold,
    )
    for listener in tuple(_listeners):
        try:
            listener(measurement)
        except Exception:
            logger.exception("What listens to measurements failed")
