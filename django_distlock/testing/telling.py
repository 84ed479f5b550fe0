"""Waiting until everybody who asked to be told of a loss has been told."""

from __future__ import annotations

import asyncio
import threading

from ..clock import now
from ..worker import events, on_worker

__all__ = ["atold", "told"]

LIMIT = 5.0  # seconds: a callback that takes longer is not waited for


def told() -> None:
    """Return when the callbacks and receivers that are due have run on their thread."""
    if not on_worker():  # a callback would wait for itself
        _behind_them().wait(LIMIT)


async def atold() -> None:
    """Return as `told`; the event loop goes on meanwhile, which a callback may need."""
    done = _behind_them()
    end = now() + LIMIT
    while not done.is_set() and now() < end:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)  # what they have handed to the loop, a cancellation say, comes first


def _behind_them() -> threading.Event:
    done = threading.Event()
    events.submit(done.set)
    return done
