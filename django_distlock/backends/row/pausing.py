"""Pausing until there is something to read from a server, in either mode."""

from __future__ import annotations

import asyncio
import os
import random
import select
import time

__all__ = ["apause", "pause"]

NAP = 0.05  # seconds between two checks where the server cannot be waited for


def pause(descriptor: int | None, seconds: float) -> None:
    """Return when a socket can be read, or after a nap if there is none; close the descriptor."""
    if descriptor is None:
        time.sleep(min(seconds, _nap()))
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        os.close(descriptor)


async def apause(descriptor: int | None, seconds: float) -> None:
    """Do the same on the event loop, which watches the socket; it occupies no thread."""
    if descriptor is None:
        await asyncio.sleep(min(seconds, _nap()))
        return
    loop = asyncio.get_running_loop()
    answered = asyncio.Event()
    try:
        loop.add_reader(descriptor, answered.set)
        try:
            async with asyncio.timeout(seconds):
                await answered.wait()
        except TimeoutError:
            return
        finally:
            loop.remove_reader(descriptor)
    except NotImplementedError:  # an event loop that cannot watch sockets
        await asyncio.sleep(min(seconds, _nap()))
    finally:
        os.close(descriptor)


def _nap() -> float:
    return NAP * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
