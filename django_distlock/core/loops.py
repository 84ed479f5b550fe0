"""What belongs to one event loop: found by it, and closed before the loop ends.

A connection of asyncio's that outlives its loop could not be closed any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from .fork import after_fork

__all__ = ["Closing", "PerLoop"]


class Closing(Protocol):
    """What can be closed."""

    async def aclose(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closing)


class PerLoop(Generic[T]):
    """One ``T`` for each event loop that asks for it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._reset()
        after_fork(self._forget_parent)

    def _reset(self) -> None:
        self._mutex = threading.RLock()
        self._loops: dict[int, tuple[asyncio.AbstractEventLoop, T, AsyncGenerator[None]]] = {}

    async def mine(self) -> T:
        """Return the one of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(id(loop))
        # The id of a loop that ended may have been given to another.
        if found is not None and found[0] is loop:
            return found[1]
        made = self._make()
        keeper = self._keep(loop, made)
        with self._mutex:
            for number, (other, *_) in list(self._loops.items()):
                if other.is_closed():
                    del self._loops[number]
            self._loops[id(loop)] = loop, made, keeper
        await anext(keeper)
        return made

    async def _keep(self, loop: asyncio.AbstractEventLoop, made: T) -> AsyncGenerator[None]:
        # A loop closes the generators that were begun on it before it ends (`asyncio.run` and
        # asgiref do so), and that is the only word that it gives of its end.
        try:
            yield
        finally:
            with self._mutex:
                found = self._loops.get(id(loop))
                if found is not None and found[1] is made:
                    del self._loops[id(loop)]
            await made.aclose()

    def each(self, act: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        """Have every loop carry ``act`` out with its own, without waiting for that."""
        with self._mutex:
            found = list(self._loops.values())
        for loop, made, _ in found:
            _on(loop, lambda made=made: act(made))  # type: ignore[misc]

    def close(self) -> None:
        """Have every loop close its own; a later caller gets another one."""
        with self._mutex:
            found = list(self._loops.values())
            self._loops.clear()
        for loop, _, keeper in found:
            _on(loop, keeper.aclose)

    def _forget_parent(self) -> None:
        """Start empty in a forked child; what the parent has is left as it is."""
        # Closing a transport would take its socket off the parent's epoll, too.
        _parked.append(self._loops)
        self._reset()


_parked: list[Any] = []
_closing: set[asyncio.Task[None]] = set()  # else nothing would keep them until they are done


def _on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have a loop, of whatever thread, do something; one that has ended has closed all it had."""

    def begin() -> None:
        task = asyncio.ensure_future(work())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    if not loop.is_closed():
        with suppress(RuntimeError):  # closed meanwhile
            loop.call_soon_threadsafe(begin)
