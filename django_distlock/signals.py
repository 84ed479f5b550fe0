"""Signals of the app, and the step by which a flow sends one in either world.

Each is sent with ``sender`` = the alias and the keyword arguments ``name``, ``alias``, ``label``
(what a metric may call it: see `lock`; or None) and:

``lock_acquired``   ``lease``, ``waited`` (seconds)
``lock_contended``  ``waited`` (seconds), ``retry_after`` (seconds or None): given up, not obtained
``lock_released``   ``fencing_token``, ``held_for`` (seconds)
``lock_renewed``    ``fencing_token``, ``deadline_in`` (seconds): by the holder or the watchdog
``lock_lost``       ``fencing_token``, ``reason``, ``held_for``: on a thread of its own
``lock_forced``     ``fencing_token``, ``holder``
``lock_attached``   ``lease``: taken up here by `Lease.attach`, no new grant
``lock_left``       ``fencing_token``, ``reason``, ``held_for``: gone from here, not released
``lock_failed``     ``action``, ``reason``, ``waited``: the store failed at it

Receivers are called robustly: what they raise is logged by Django and breaks no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from django.dispatch import Signal

__all__ = [
    "lock_acquired",
    "lock_attached",
    "lock_contended",
    "lock_failed",
    "lock_forced",
    "lock_left",
    "lock_lost",
    "lock_released",
    "lock_renewed",
]

logger = logging.getLogger("django_distlock")

lock_acquired = Signal()
lock_contended = Signal()
lock_released = Signal()
lock_renewed = Signal()
lock_lost = Signal()
lock_forced = Signal()
lock_attached = Signal()
lock_left = Signal()
lock_failed = Signal()

listeners: list[Callable[[Tell], None]] = []
"""What is told of every signal, in either world without a change of threads: see `metrics`."""


def heard(signal: Signal) -> bool:
    """Tell whether anybody wants to know, so that else nothing is made up to be sent."""
    return bool(signal.receivers or listeners)


@dataclass(frozen=True, slots=True)
class Tell:
    """A step of a flow: send a signal."""

    interruptible: ClassVar[bool] = True

    signal: Signal
    alias: str
    facts: dict[str, Any]
    label: str | None = None
    hold: object = None  # of a beginning or an end, for listeners alone

    def do(self) -> None:
        self._to_listeners()
        if not self.signal.receivers:
            return
        try:
            self.signal.send_robust(sender=self.alias, **self._given())
        except RuntimeError:
            # Django cannot run asynchronous receivers for a synchronous call on the loop's thread.
            logger.exception("Receivers of a signal were not called")

    async def ado(self) -> None:
        self._to_listeners()
        if self.signal.receivers:
            await self.signal.asend_robust(sender=self.alias, **self._given())

    def _given(self) -> dict[str, Any]:
        return {"alias": self.alias, "label": self.label, **self.facts}

    def _to_listeners(self) -> None:
        for listener in tuple(listeners):
            try:
                listener(self)
            except Exception:
                logger.exception("A listener failed")
