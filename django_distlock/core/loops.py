"""Event loops: work that is awaited to its end, on a thread or not, and what belongs to one loop.

A connection of asyncio's that outlives its loop could not be closed any more, so each loop has its
own, which are closed before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from .clock import Deadline
from .fork import after_fork, park
from .threads import Mutex

__all__ = ["Closing", "Errand", "PerLoop", "finish", "to_the_end", "within"]

T = TypeVar("T")

# -- limits ----------------------------------------------------------------------------------------


class within:
    """Let a block take ``seconds``, as `asyncio.timeout` does, and longer if the loop stood still.

    What was answered meanwhile is read in the next rounds of the loop, see `Deadline`. A timeout of
    asyncio's would end the block before: its timer is due in the first of them.
    """

    __slots__ = ("_deadline", "_ending", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def __aenter__(self) -> None:
        self._ending = asyncio.timeout(None)
        await self._ending.__aenter__()
        loop = asyncio.get_running_loop()
        self._deadline = Deadline(loop.time() + self._seconds, loop.time)
        self._timer = loop.call_at(self._deadline.at, self._due)

    async def __aexit__(self, *raised: Any) -> None:
        self._timer.cancel()
        await self._ending.__aexit__(*raised)

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        if self._deadline.put_off():
            self._timer = loop.call_at(self._deadline.at, self._due)
        else:
            self._ending.reschedule(loop.time())


# -- blocking work ---------------------------------------------------------------------------------

Start = Callable[[Callable[[], None]], "asyncio.Future[None]"]


class Errand(Generic[T]):
    """One piece of work: either it is done and its end is seen, or it never begins."""

    def __init__(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._mutex = Mutex()
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
    interrupted: tuple[Any, ...] | None = None
    try:
        while not errand.done.done():
            try:
                await asyncio.wait([errand.done])
            except asyncio.CancelledError as error:
                interrupted = error.args  # by which anyio knows its scopes
                errand.give_up()
        if interrupted is not None:
            if not errand.done.cancelled():
                errand.done.exception()  # seen: the cancellation goes before it
            raise asyncio.CancelledError(*interrupted)
        return errand.done.result()
    finally:
        # The error knows these frames, and the future knows the error: cut the ring, or whatever
        # the frames above hold lives until the garbage collector comes.
        errand.forget()
        del errand, runner


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end, also when cancelled meanwhile; the cancellation goes on after.

    Else the thread under way could grant the lock after it was given up.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():
            raise
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()  # seen; the cancellation is what the flow must answer
        raise
    finally:
        del task  # it knows its error, which knows this frame: see flow.run


# -- one of a kind for each loop -------------------------------------------------------------------


class Closing(Protocol):
    """What can be closed."""

    async def aclose(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closing)


class PerLoop(Generic[C]):
    """One ``C`` for each event loop that asks for it."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._reset()
        after_fork(self._forget_parent)

    def _reset(self) -> None:
        self._mutex = Mutex()
        self._loops: dict[int, tuple[asyncio.AbstractEventLoop, C, AsyncGenerator[None]]] = {}

    def found(self) -> C | None:
        """Return the one of the running loop, if it has one already."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(id(loop))
        # The id of a loop that ended may have been given to another.
        return found[1] if found is not None and found[0] is loop else None

    async def mine(self) -> C:
        """Return the one of the running loop."""
        if (found := self.found()) is not None:
            return found
        loop, made = asyncio.get_running_loop(), self._make()
        keeper = self._keep(loop, made)
        with self._mutex:
            for number, (other, *_) in list(self._loops.items()):
                if other.is_closed():
                    del self._loops[number]
            self._loops[id(loop)] = loop, made, keeper
        await anext(keeper)
        return made

    async def _keep(self, loop: asyncio.AbstractEventLoop, made: C) -> AsyncGenerator[None]:
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

    def each(self, act: Callable[[C], Coroutine[Any, Any, None]]) -> None:
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
        park(self._loops)
        self._reset()


_closing: set[asyncio.Task[None]] = set()  # else nothing would keep them until they are done


def _on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have a loop, of whatever thread, do something; one that has ended has closed all it had."""

    def begin() -> None:
        task = asyncio.get_running_loop().create_task(work())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    if not loop.is_closed():
        with suppress(RuntimeError):  # closed meanwhile
            loop.call_soon_threadsafe(begin)
