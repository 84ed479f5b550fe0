"""Blocking work on another thread, awaited to its end whatever happens to the waiting task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

__all__ = ["Errand", "to_the_end"]

T = TypeVar("T")

Start = Callable[[Callable[[], None]], "asyncio.Future[None]"]


class Errand(Generic[T]):
    """One piece of work: either it is done and its end is seen, or it never begins."""

    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._mutex = threading.RLock()
        self._begun = False
        self._given_up = False
        self.done: asyncio.Future[T] = loop.create_future()

    def run(self) -> None:
        """Do the work, on whatever thread; unless it was given up before."""
        with self._mutex:
            if self._given_up:
                return
            self._begun = True
        try:
            answer = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            self._post(partial(self.done.set_exception, error))
        else:
            self._post(partial(self.done.set_result, answer))

    def _post(self, news: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop was closed: no task is waiting
            self._loop.call_soon_threadsafe(news)

    def give_up(self, error: BaseException | None = None) -> None:
        """Have it never begin, unless it has begun; then only its own end ends it."""
        with self._mutex:
            if self._begun or self._given_up:
                return
            self._given_up = True
        if error is None:
            self.done.cancel()
        else:
            self.done.set_exception(error)

    def forget(self) -> None:
        """Let go of the work and of its answer, which was seen."""
        del self.done, self._work

    def runner_ended(self, runner: asyncio.Future[None]) -> None:
        """Give up when what should have run it ended without having begun it."""
        self.give_up(None if runner.cancelled() else runner.exception())


async def to_the_end(work: Callable[[], T], start: Start) -> T:
    """Return what ``work`` returns; ``start`` is given a function and runs it on a thread.

    A cancellation that comes while the work is under way goes on after the work has ended: else
    the thread could take a lock after it was given up. That holds too when the event loop cancels
    all its tasks at its end, whichever task runs the work.
    """
    errand = Errand(work, asyncio.get_running_loop())
    runner = start(errand.run)
    runner.add_done_callback(errand.runner_ended)
    interrupted = False
    try:
        while not errand.done.done():
            try:
                await asyncio.wait([errand.done])
            except asyncio.CancelledError:
                interrupted = True
                errand.give_up()
        if interrupted:
            if not errand.done.cancelled():
                errand.done.exception()  # seen: the cancellation goes before it
            raise asyncio.CancelledError
        return errand.done.result()
    finally:
        # The error knows these frames, and the future knows the error: cut the ring, or whatever
        # the frames above hold lives until the garbage collector comes.
        errand.forget()
        del errand, runner
