"""Waiting until everybody who asked to be told of a loss has been told."""

from __future__ import annotations

import asyncio

from ..core.clock import now
from ..core.worker import callbacks, on_worker

__all__ = ["atold", "told"]

LIMIT = 5.0  # seconds: a callback that takes longer is not waited for


def told() -> None:
    """Return when the callbacks and receivers that are due have run on their threads."""
    if not on_worker():  # a callback would wait for itself
        callbacks.drain(now() + LIMIT)


async def atold() -> None:
    """Return as `told`; the event loop goes on meanwhile, which a callback may need."""
    end = now() + LIMIT
    while not callbacks.is_idle() and now() < end:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)  # what they have handed to the loop, a cancellation say, comes first
