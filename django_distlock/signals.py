"""Signals of the app, and the step by which a flow sends one in either world.

Each is sent with ``sender`` = the alias and the keyword arguments ``name``, ``alias`` and:

``lock_acquired``   ``lease``, ``waited`` (seconds)
``lock_contended``  ``waited`` (seconds), ``retry_after`` (seconds or None): given up, not obtained
``lock_released``   ``fencing_token``, ``held_for`` (seconds)
``lock_renewed``    ``fencing_token``, ``deadline_in`` (seconds): by the holder or the watchdog
``lock_lost``       ``fencing_token``, ``reason``: on a thread of its own, off the renewals
``lock_forced``     ``fencing_token``, ``holder``

Receivers are called robustly: what they raise is logged by Django and breaks no lock.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

from django.dispatch import Signal

__all__ = [
    "lock_acquired",
    "lock_contended",
    "lock_forced",
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


@dataclass(frozen=True, slots=True)
class Tell:
    """A step of a flow: send a signal."""

    interruptible: ClassVar[bool] = True

    signal: Signal
    alias: str
    facts: dict[str, Any]

    def do(self) -> None:
        if not self.signal.receivers:
            return
        try:
            self.signal.send_robust(sender=self.alias, alias=self.alias, **self.facts)
        except RuntimeError:
            # Django cannot run asynchronous receivers for a synchronous call on the loop's thread.
            logger.exception("Receivers of a signal were not called")

    async def ado(self) -> None:
        if self.signal.receivers:
            await self.signal.asend_robust(sender=self.alias, alias=self.alias, **self.facts)
