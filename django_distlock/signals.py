"""Signals of the app, and the step by which a flow sends one in either mode.

Each is sent with ``sender`` = the alias and the keyword arguments ``name``, ``alias``, ``label``
(what a metric may call it: see `lock`; or None) and:

``lock_acquired``        ``lease``, ``waited`` (seconds), ``attached``: whether by `Lease.attach`
``lock_contended``       ``waited`` (seconds), ``retry_after`` (seconds or None): not obtained
``lock_released``        ``fencing_token``, ``held_for`` (seconds), ``outcome``, ``reason``
``lock_force_released``  ``fencing_token``, ``holder``
``lock_failed``          ``action``, ``reason``, ``waited``: the store failed at it

The ``outcome`` of a lease is ``"released"``, ``"lost"``, ``"detached"``, or ``"abandoned"``:
released in the background, after a cancellation, say. All but the first are sent on a thread of
their own, with the ``reason``.

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
    "lock_contended",
    "lock_failed",
    "lock_force_released",
    "lock_released",
]

logger = logging.getLogger("django_distlock")

lock_acquired = Signal()
lock_contended = Signal()
lock_released = Signal()
lock_force_released = Signal()
lock_failed = Signal()

listeners: list[Callable[[Tell], None]] = []
"""What is told of every signal and renewal, without a change of threads: see `metrics`."""


def heard(signal: Signal) -> bool:
    """Return whether the signal has receivers, so that otherwise nothing is made up to be sent."""
    return bool(signal.receivers or listeners)


@dataclass(frozen=True, slots=True)
class Tell:
    """A step of a flow: send a signal; a renewal (None) is told to listeners alone."""

    interruptible: ClassVar[bool] = True

    signal: Signal | None
    alias: str
    facts: dict[str, Any]
    label: str | None = None
    hold: object = None  # of a beginning or an end, for listeners alone

    def do(self) -> None:
        self._to_listeners()
        if self.signal is None or not self.signal.receivers:
            return
        try:
            self.signal.send_robust(sender=self.alias, **self._given())
        except RuntimeError:
            # Django cannot run asynchronous receivers for a synchronous call on the loop's thread.
            logger.exception("Receivers of a signal were not called")

    async def ado(self) -> None:
        self._to_listeners()
        if self.signal is not None and self.signal.receivers:
            await self.signal.asend_robust(sender=self.alias, **self._given())

    def _given(self) -> dict[str, Any]:
        return {"alias": self.alias, "label": self.label, **self.facts}

    def _to_listeners(self) -> None:
        for listener in tuple(listeners):
            try:
                listener(self)
            except Exception:
                logger.exception("A listener failed")
