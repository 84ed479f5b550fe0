"""Cancelling the body of an ``async with`` when its lease is lost."""

from __future__ import annotations

import asyncio
from typing import cast

from .held import Hold

__all__ = ["CancelScope"]


class CancelScope:
    """Cancels a task once, and knows its own cancellation from a foreign one.

    Behaves as `asyncio.timeout`: the cancellation is taken back by `Task.uncancel` when the block
    ends, and where somebody else cancelled the task too, theirs wins.
    """

    def __init__(self, hold: Hold) -> None:
        self._task: asyncio.Task[object] = cast("asyncio.Task[object]", asyncio.current_task())
        self._loop = asyncio.get_running_loop()
        self._before = self._task.cancelling()
        self._cancelled = False
        self._over = False
        self._told_by = hold.on_lost
        hold.tell_when_lost(self._lost)

    def _lost(self, hold: Hold) -> None:
        # On the thread that noticed. A loop that is closed has no body left to cancel.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._over:
            self._cancelled = True
            self._task.cancel()

    def ended(self, error: BaseException | None) -> bool:
        """End the scope; tell whether ``error`` is our own cancellation arriving."""
        self._over = True
        if self._lost in self._told_by:
            self._told_by.remove(self._lost)
        if not self._cancelled:
            return False
        return self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError)
