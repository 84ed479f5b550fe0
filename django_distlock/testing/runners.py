"""Who takes locks in the contract suite: threads by the sync API, tasks by the async one.

A test is written once, as a coroutine that tells *actors* what to do and waits for their answers.
In the sync mode an actor is a thread, in the async mode a task, for that is what holds a lock.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from asgiref.sync import sync_to_async

from ..backends.base import BaseLockBackend
from ..core import flow
from ..core.blocks import Guard
from ..core.durations import UNSET, Duration, Wait
from ..core.values import Cleaned, LockInfo
from ..core.worker import close_connections
from ..exceptions import LockBackendError, StoreUnavailableError
from ..lease import Lease
from ..lock import Lock

__all__ = [
    "RUNNERS",
    "Actor",
    "AsyncRunner",
    "Cancelled",
    "Runner",
    "SyncRunner",
    "TaskActor",
    "ThreadActor",
    "ask_again",
    "eventually",
    "is_late",
    "until",
]

T = TypeVar("T")
Job: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"

PATIENCE = 10.0  # seconds after which an actor that does not end is a failure
LATE = re.compile(r"COMMAND_TIMEOUT|[Nn]o (answer|connection)|did not answer|took longer to answer")
"""What a store says that did not answer in time."""
BUSY = 20.0  # seconds for which a server that answers late is asked again
STEP = 0.01


class Cancelled(Exception):
    """What an actor was doing was cancelled by `TaskActor.cancel`."""


def is_late(error: LockBackendError) -> bool:
    """Return whether a store failed because it did not answer in time, as on a busy machine."""
    return isinstance(error, StoreUnavailableError) or LATE.search(str(error)) is not None


async def ask_again(ask: Callable[[], Awaitable[T]], end: float) -> T:
    """Ask a server that is busy until it answers; raise its error when ``end`` is over."""
    while True:
        try:
            return await ask()
        except LockBackendError as error:
            if not is_late(error):
                raise
            Actor._failed_at = time.monotonic()
            if time.monotonic() > end:
                raise


async def eventually(ask: Callable[[], Awaitable[T]], within: float) -> T:
    """Ask again and again; return the first true answer, fail when none came ``within`` seconds."""
    end = time.monotonic() + within
    while not (answer := await ask()):
        if time.monotonic() >= end:
            raise AssertionError(f"not within {within:g} s; last answer: {answer!r}")
        await asyncio.sleep(STEP)
    return answer


async def until(condition: Callable[[], object], within: float = 20.0) -> None:
    """Wait until a condition that costs nothing holds; fail when it does not in time."""

    async def ask() -> bool:
        return bool(condition())

    await eventually(ask, within)


class Actor(ABC):
    """A party that takes locks, one call after the other: a holder of its own."""

    _failed_at: ClassVar[float] = -math.inf
    """When a store last answered any of them late, or not at all."""

    @abstractmethod
    async def _do(self, here: Callable[[], T], there: Callable[[], Awaitable[T]]) -> T:
        """Do ``here`` on the actor's thread, or ``there`` in its task, as the mode has it."""

    @abstractmethod
    async def close(self) -> None:
        """End the thread or task."""

    async def acquire(self, guard: Guard[T], *, wait: Wait = UNSET) -> T | None:
        """Call ``acquire``."""
        return await self._do(lambda: guard.acquire(wait=wait), lambda: guard.aacquire(wait=wait))

    def begin(self, guard: Guard[T], *, wait: Wait = UNSET) -> asyncio.Task[T | None]:
        """Begin to acquire, and go on without waiting for it."""
        acquiring = self.acquire(guard, wait=wait)
        return asyncio.create_task(acquiring)

    async def take(self, guard: Guard[T], *, wait: Wait = 0) -> T:
        """Acquire what is free."""
        got = await self._asked(guard, wait, free=True)
        if got is None:
            raise AssertionError(f"{guard!r:.200} was not obtained, wait={wait}")
        return got

    async def is_refused(self, guard: Guard[Any]) -> bool:
        """Return whether what is not waited for is not obtained."""
        return await self._asked(guard, 0) is None

    async def _asked(self, guard: Guard[T], wait: Wait, *, free: bool = False) -> T | None:
        """Acquire; a server that is busy may have to be asked again.

        A call that fails, of any actor, may have been granted the lock, which is given back in the
        background: until then what is ``free`` is refused.
        """
        end = time.monotonic() + BUSY
        while True:
            got = await ask_again(lambda: self.acquire(guard, wait=wait), end)
            failed = time.monotonic() - Actor._failed_at < BUSY
            if got is not None or not (free and failed) or time.monotonic() > end:
                return got
            await asyncio.sleep(STEP)

    async def release(self, lease: Lease) -> None:
        """Call ``release``."""
        await self._do(lease.release, lease.arelease)

    async def resign(self, lease: Lease) -> None:
        """Call ``resign``."""
        await self._do(lease.resign, lease.aresign)

    async def renew(self, lease: Lease, ttl: Duration | None = None) -> None:
        """Call ``renew``."""
        await self._do(lambda: lease.renew(ttl), lambda: lease.arenew(ttl))

    async def downgrade(self, lease: Lease) -> None:
        """Call ``downgrade``."""
        await self._do(lease.downgrade, lease.adowngrade)

    async def attach(self, handle: str) -> Lease:
        """Call ``Lease.attach``."""
        return await self._do(lambda: Lease.attach(handle), lambda: Lease.aattach(handle))

    async def enter(self, guard: Guard[T]) -> T:
        """Begin a ``with`` block."""
        return await self._do(guard.__enter__, guard.__aenter__)

    async def leave(self, guard: Guard[Any], error: BaseException | None = None) -> None:
        """End a ``with`` block, by an error of its body if one is given."""
        how = (type(error), error, error.__traceback__) if error else (None, None, None)
        await self._do(lambda: guard.__exit__(*how), lambda: guard.__aexit__(*how))

    async def locked(self, lock: Lock) -> bool:
        """Call ``locked``."""
        return await self._do(lock.locked, lock.alocked)

    async def held(self, backend: BaseLockBackend, prefix: str = "") -> list[LockInfo]:
        """List ``held``."""
        return await self._do(
            lambda: list(backend.held(prefix)), lambda: _list(backend.aheld(prefix))
        )

    async def force(
        self, backend: BaseLockBackend, name: str, token: int | None = None
    ) -> LockInfo:
        """Call ``force_release``."""
        return await self._do(
            lambda: backend.force_release(name, fencing_token=token),
            lambda: backend.aforce_release(name, fencing_token=token),
        )

    async def clean(self, backend: BaseLockBackend, **options: Any) -> Cleaned:
        """Call ``clean``."""
        return await self._do(lambda: backend.clean(**options), lambda: backend.aclean(**options))

    async def call(self, backend: BaseLockBackend, verb: str, *args: Any) -> Any:
        """Call a primitive of the backend."""
        return await self._do(lambda: backend.call(verb, *args), lambda: backend.acall(verb, *args))

    async def drive(self, steps: flow.Flow[T]) -> T:
        """Carry out the steps of a flow."""
        return await self._do(lambda: flow.run(steps), lambda: flow.arun(steps))

    async def do(self, function: Callable[[], T]) -> T:
        """Call a function that does no input or output, as this actor."""

        async def there() -> T:
            return function()

        return await self._do(function, there)


async def _list(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]


class ThreadActor(Actor):
    """A thread that uses the sync API."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._work, name=f"actor-{next(self._numbers)}", daemon=True
        )
        self._thread.start()

    async def _do(self, here: Callable[[], T], there: Callable[[], Awaitable[T]]) -> T:
        return await self.run(here)

    async def run(self, work: Callable[[], T]) -> T:
        """Do any work on the thread."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, future))
        return await future

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join, PATIENCE)
        if self._thread.is_alive():
            raise AssertionError(f"{self._thread.name} does not end")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._carry_out(*job)
            # Else this frame would keep a lease alive that the test has dropped.
            del job
        close_connections()

    def _carry_out(self, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - the test's to judge
            self._loop.call_soon_threadsafe(_settle, future, None, error)
        else:
            self._loop.call_soon_threadsafe(_settle, future, answer, None)


class TaskActor(Actor):
    """A task that uses the async API."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[Job | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._work())
        self.busy = False

    async def _do(self, here: Callable[[], T], there: Callable[[], Awaitable[T]]) -> T:
        return await self.run(there)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Await any work in the task."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((work, future))
        return await future

    def cancel(self) -> None:
        """Cancel the task in the middle of what it does now."""
        if not self.busy:
            raise AssertionError("the actor does nothing that could be cancelled")
        self._task.cancel()

    async def close(self) -> None:
        self._jobs.put_nowait(None)
        done, _ = await asyncio.wait([self._task], timeout=PATIENCE)
        if not done:
            self._task.cancel()
            raise AssertionError("a task of the test does not end")

    async def _work(self) -> None:
        while (job := await self._jobs.get()) is not None:
            self.busy = True
            await self._carry_out(*job)
            self.busy = False
            del job  # as in ThreadActor

    async def _carry_out(
        self, work: Callable[[], Awaitable[Any]], future: asyncio.Future[Any]
    ) -> None:
        try:
            answer = await work()
        except asyncio.CancelledError:
            self._task.uncancel()
            _settle(future, None, Cancelled())
        except BaseException as error:  # noqa: BLE001 - the test's to judge
            _settle(future, None, error)
        else:
            _settle(future, answer, None)


def _settle(future: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return  # the test has stopped waiting for it
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


class Runner(ABC):
    """The actors of one test. Leaving it ends them and closes their connections."""

    kind: ClassVar[str]

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.prefix = f"contract:{os.urandom(6).hex()}:"
        self.names: set[str] = set()
        """The lock names that the test has asked for."""
        self._actors: list[Actor] = []

    def name(self, what: str = "") -> str:
        """Return a lock name that no other test uses."""
        self.names.add(self.prefix + what)
        return self.prefix + what

    @abstractmethod
    def actor(self) -> Actor:
        """Return a new actor."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        ends = await asyncio.gather(
            *(actor.close() for actor in self._actors), return_exceptions=True
        )
        self._actors.clear()
        await self._close()
        if exc is None:  # else the test's own error says more
            for end in ends:
                if end is not None:
                    raise end

    async def _close(self) -> None:  # noqa: B027 - threads share nothing
        """Close what the actors shared."""


class SyncRunner(Runner):
    """The sync mode."""

    kind = "sync"

    def actor(self) -> ThreadActor:
        actor = ThreadActor()
        self._actors.append(actor)
        return actor


class AsyncRunner(Runner):
    """The async mode."""

    kind = "async"

    def actor(self) -> TaskActor:
        actor = TaskActor()
        self._actors.append(actor)
        return actor

    async def _close(self) -> None:
        await sync_to_async(close_connections, thread_sensitive=True)()


RUNNERS: dict[str, type[Runner]] = {runner.kind: runner for runner in (SyncRunner, AsyncRunner)}
