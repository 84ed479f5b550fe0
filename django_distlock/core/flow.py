"""The algorithm, once for all stores and for both modes.

An algorithm is a generator that yields *steps* and is sent their answers. Two small drivers, `run`
and `arun`, carry steps out and know nothing of locks. (The shape is that of psycopg's
``generators.py`` and httpx's ``auth_flow``.) A test can stop a flow between any two steps.

Acquire:

1. Queue first if the lock was contended a moment ago. Note the time, then ask the store: the lease
   is counted from *before* the question.
2. Granted, and the answer came while the lease still lasts: done.
3. Not granted and the wait is over: withdraw, so that nothing of ours stays in the store.
4. Wait in the store's queue if it has one, else pause, and ask again, unless the store answered
   the next question when it woke us.

The first attempt may have been made before the flow begins, by one plain call: most locks are free,
and a call costs less than a generator. What came of it is handed in as an `Attempt`.

Whatever else ends it, an error, a cancellation, Ctrl-C, withdraws first: the answer may have been
lost on its way while the store granted the lock.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from ..exceptions import (
    LockBackendError,
    LockError,
    StoreConflictError,
    StoreUnavailableError,
    UnsupportedOperationError,
)
from .backoff import Backoff
from .clock import Clock
from .loops import finish
from .values import Bound, Claim, Grant, Refusal

__all__ = [
    "UNREAD",
    "Attempt",
    "Call",
    "Do",
    "Flow",
    "Granted",
    "Step",
    "acquire",
    "arun",
    "carried",
    "insist",
    "run",
    "unread",
]

T = TypeVar("T")

# When no wait is left: a deadlock is no reason to call the store down, but the wait is kept.
TRIES_IN_CONFLICT = 5
LATE, TOO_LATE = 0.05, 0.5  # seconds past the wait: two tries, one try
# Seconds in a queue after which the store is asked again: a wake-up may be lost, and the
# waiter before us may hang.
QUEUE_LIMIT = 1.0
AFTER_CONFLICT = Backoff(0.01, 0.15)  # pauses of a release or renewal that met one
MIN_ATTEMPT_TIMEOUT = 1.0  # seconds that one call to the store may take, however short the wait


class Step(Protocol):
    """Something to be done outside the flow, in either mode.

    One that is ``interruptible`` changes nothing, or ends by itself what it has begun: so it may be
    cancelled.
    """

    interruptible: ClassVar[bool]

    def do(self) -> Any: ...
    async def ado(self) -> Any: ...


Flow: TypeAlias = Generator[Step, Any, T]


class Store(Protocol):
    """What the flow needs of a backend."""

    def is_contended(self, claim: Claim) -> bool: ...
    def is_queued(self, claim: Claim) -> bool: ...
    @property
    def alias(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def command_timeout(self) -> float: ...
    @property
    def min_attempt_timeout(self) -> float: ...
    @property
    def queue_limit(self) -> float: ...
    @property
    def never_blocks(self) -> bool: ...
    def call(self, verb: str, *args: Any, name: str | None) -> Any: ...
    async def acall(
        self, verb: str, *args: Any, name: str | None, to_the_end: bool = True
    ) -> Any: ...


@dataclass(slots=True)
class Call:
    """Ask the store: a primitive of the backend, and its arguments."""

    interruptible: ClassVar[bool] = True  # see Calls.acall

    store: Store
    verb: str
    args: tuple[Any, ...]
    name: str | None = None

    def do(self) -> Any:
        return self.store.call(self.verb, *self.args, name=self.name)

    async def ado(self) -> Any:
        return await self.store.acall(self.verb, *self.args, name=self.name)


@dataclass(slots=True)
class Pause(Call):
    """Wait until trying again may help; a cancellation ends that at once."""

    async def ado(self) -> Any:
        return await self.store.acall(self.verb, *self.args, name=self.name, to_the_end=False)


@dataclass(slots=True)
class Wait(Pause):
    """Wait for the holder."""

    def do(self) -> Any:
        # Django's own rule and its way out, which notebooks use.
        unsafe = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
        if asyncio._get_running_loop() is not None and not unsafe:
            raise UnsupportedOperationError(
                "The lock is held, and waiting for it here would stop the event loop of this "
                "thread: use 'async with' or 'await lock.aacquire()'",
                name=self.name,
                alias=self.store.alias,
            )
        return super(Wait, self).do()


@dataclass(slots=True)
class Attempt:
    """What came of a call to the store that was made ahead of the flow: an answer or an error."""

    asked: float
    answer: Any = None
    error: BaseException | None = None
    taken: bool = False
    """Whether the flow has it; until then the caller handles an interruption."""

    def result(self) -> Any:
        """Return the answer or raise the error, which is not kept: it refers to its frames."""
        self.taken = True
        error, self.error = self.error, None
        if error is None:
            return self.answer
        try:
            raise error
        finally:
            del error


class Granted(NamedTuple):
    """A grant with the local deadline until which it can be relied on."""

    fencing_token: int
    deadline: float
    bound: Bound | None = None
    repeated: bool = False
    """Whether an attempt before it ended in an error, and may still reach the store."""
    slot: int | None = None


def drift(ttl: float) -> float:
    """Return what is taken off a ttl for clocks that run at different speeds: 1 % and 2 ms.

    The figures are those of the Redlock description (redis.io, "Distributed Locks with Redis").
    """
    return ttl * 0.01 + 0.002


def acquire(
    store: Store,
    claim: Claim,
    *,
    until: float | None,
    clock: Clock,
    delays: Iterable[float],
    abandon: Callable[[Claim], None],
    first: Attempt | None = None,
) -> Flow[Granted | Refusal]:
    """Try to get ``claim`` granted until the clock shows ``until`` (None: no limit).

    ``first`` is what came of an attempt that was made already.
    ``abandon`` is handed the claim when it could not be withdrawn, to do so later. Raises
    LockBackendError when the store failed; a lock that is merely held ends in a Refusal.
    """
    conflicts = 0
    sleeps: Iterator[float] | None = None  # made by the first pause
    told: Grant | Refusal | bool = False
    asking = False
    refused: Refusal | None = None  # once it leaves the queue
    try:
        asked = clock() if first is None else first.asked
        left = None if until is None else until - asked
        if first is None and (left is None or left > 0) and store.is_contended(claim):
            # Otherwise a process that re-acquires in a loop would starve the queue.
            told = yield from _queue(store, claim, _at_most(left, store.queue_limit, None), left)
            asked = clock()
        while True:
            answer = None if isinstance(told, bool) else told
            if answer is None:
                left = None if until is None else until - asked
                limit = patience(store, left)
                try:
                    asking = True
                    if first is None or first.taken:
                        answer = yield Call(store, "try_acquire", (claim, limit), claim.name)
                    else:
                        answer = first.result()
                    asking = False
                except StoreConflictError as error:
                    conflicts += 1
                    late = -1.0 if until is None else clock() - until
                    most = TRIES_IN_CONFLICT if late <= LATE else 2 if late <= TOO_LATE else 1
                    if late >= 0 and (
                        conflicts >= most or isinstance(error, StoreUnavailableError)
                    ):
                        raise
            if isinstance(answer, Grant):
                since = asked if answer.asked is None else answer.asked
                deadline = since + answer.valid_for - drift(answer.valid_for)
                if clock() < deadline:
                    token, repeated = answer.fencing_token, conflicts > 0
                    return Granted(token, deadline, answer.bound, repeated, answer.slot)
            if isinstance(answer, Refusal) and answer.other_limit is not None:
                break
            left = None if until is None else until - clock()
            if left is not None and left <= 0:
                if isinstance(answer, Grant):
                    raise LockBackendError(
                        "The store took longer to answer than the lease lasts: "
                        "raise the ttl, or look at the store's load"
                    )
                if answer is not None:
                    break
            told = False
            if isinstance(answer, Refusal) and answer.queue:
                turn = _at_most(left, store.queue_limit, answer)
                told = yield from _queue(store, claim, turn, left)
            if not told:
                sleeps = sleeps or iter(delays)
                seconds = _at_most(left, next(sleeps), answer)
                step = Wait if isinstance(answer, Refusal) else Pause
                yield step(store, "pause", (claim, seconds), claim.name)
            asked = clock()
        if store.is_queued(claim):
            refused = answer
            yield from insist(store, "withdraw", claim, patience=0.0)
        return answer
    except GeneratorExit:
        # The driver has gone, so no step of ours would be carried out.
        abandon(claim)
        raise
    except LockBackendError:
        # Asking a store that just failed would only wait for it again.
        abandon(claim)
        if refused is not None:
            return refused
        raise
    except BaseException as error:
        if refused is not None:  # a second try to leave the queue would only take longer
            if not isinstance(error, AssertionError):  # see `_withdraw`
                abandon(claim)
            raise
        withdrawn = yield from _withdraw(store, claim, abandon)
        if asking and not withdrawn and not isinstance(error, asyncio.CancelledError):
            # A signal's handler raised in the middle of the question, which may reach the store
            # after its withdrawal. (A cancellation waits for the answer: see `finish`.)
            abandon(claim)
        raise


def _queue(
    store: Store, claim: Claim, turn: float, left: float | None
) -> Flow[Grant | Refusal | bool]:
    """Wait in the store's queue; where that meets a conflict, the next attempt says which."""
    try:
        told: Grant | Refusal | bool = yield Wait(store, "queue", (claim, turn, left), claim.name)
    except StoreConflictError:
        return False
    return told


def patience(store: Store, left: float | None) -> float:
    """Return how long one attempt may take, with ``left`` seconds of the wait."""
    if left is None:
        return store.command_timeout
    return min(store.command_timeout, max(left, store.min_attempt_timeout))


def _at_most(left: float | None, seconds: float, answer: object) -> float:
    """Return how long to pause: ``seconds``, but not past the wait or the holder's lease."""
    if isinstance(answer, Refusal) and answer.remaining is not None and answer.remaining > 0:
        seconds = min(seconds, answer.remaining + 0.001)
    if left is None:
        return seconds
    # With no wait left we are here only to try again after a conflict.
    return min(seconds, left) if left > 0 else min(seconds, 0.01)


def _withdraw(store: Store, claim: Claim, abandon: Callable[[Claim], None]) -> Flow[bool]:
    """Take back what was asked for; return whether that is done, or cared for."""
    try:
        return bool((yield from insist(store, "release", claim, patience=0.0)))
    except LockBackendError:
        abandon(claim)
        return True
    except AssertionError:
        # Django's guard of tests without a database let nothing through. It guards this thread
        # only: in the background the program's real database would be connected to.
        raise
    except BaseException:
        # A second Ctrl-C or cancellation: unknown whether it was withdrawn.
        abandon(claim)
        raise


def insist(
    store: Store,
    verb: str,
    claim: Claim,
    *,
    patience: float | None = None,
    first: Attempt | None = None,
) -> Flow[Any]:
    """Call ``verb`` with the claim, again after conflicts for ``patience`` seconds in all.

    By default for COMMAND_TIMEOUT: within that a server is restarted, or another leader is chosen.
    A release that finds nothing after a conflict was done by the try that met it. ``first`` is what
    came of a call that was made already.
    """
    end = store.clock() + (store.command_timeout if patience is None else patience)
    sleeps: Iterator[float] | None = None
    while True:
        try:
            if first is None or first.taken:
                answer = yield Call(store, verb, (claim,), claim.name)
            else:
                answer = first.result()
            return answer or (verb == "release" and sleeps is not None)
        except StoreConflictError:
            sleeps = sleeps or iter(AFTER_CONFLICT)
            pause = next(sleeps)
            if store.clock() + pause >= end:
                raise
            yield Pause(store, "pause", (claim, pause), claim.name)


@dataclass(slots=True)
class Do:
    """Call a function in a thread; on an event loop, await what it returns."""

    interruptible: ClassVar[bool] = True

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def do(self) -> Any:
        return self.function(*self.args)

    async def ado(self) -> Any:
        return await self.function(*self.args)


UNREAD: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,  # a StopIteration in a generator, a RecursionError
)
"""What reading raises where an answer has another form than the store's protocol gives it."""


def unread(what: object) -> str:
    """Return the message about an answer of another form: the answer, or what reading it raised."""
    return f"an answer of another form than the store's, perhaps a proxy's: {what!r}"


def carried(
    operation: Generator[Any, Any, T],
    carry: Callable[[Any], Flow[Any]],
    kind: Callable[[str], Exception],
) -> Flow[T]:
    """Return a flow that carries an operation out: a generator that yields requests of any kind.

    ``carry`` returns a flow for each request, whose answer or error the operation is sent. Where
    the operation cannot read an answer, an error of the store's is raised, of this ``kind``.
    """
    resume: Callable[[Any], Any] = operation.send
    answer: Any = None
    reads = False
    try:
        while True:
            try:
                request = resume(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            except UNREAD as error:
                if error is answer or not reads or isinstance(error, LockError):
                    raise  # what it was told of, or has not come from an answer
                raise kind(unread(error)) from error
            try:
                answer, resume, reads = (yield from carry(request)), operation.send, True
            except GeneratorExit:
                operation.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the operation decides, and raises it again
                answer, resume = error, operation.throw
    finally:
        answer = None  # see run()


def run(flow: Flow[T]) -> T:
    """Drive a flow in this thread."""
    resume: Callable[[Any], Step] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                step = resume(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                answer, resume = step.do(), flow.send
            except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
                answer, resume = error, flow.throw
    finally:
        # An error refers to this frame: the frame must not refer to the error, or what hangs on
        # either (a dropped lease, say) would live until the garbage collector comes.
        answer = None


async def arun(flow: Flow[T]) -> T:
    """Drive a flow on the running event loop, which is asyncio's."""
    if asyncio._get_running_loop() is None:
        flow.close()
        raise UnsupportedOperationError(
            "The asynchronous calls need a running event loop of asyncio (or uvloop); under trio "
            "call the synchronous ones in a thread"
        )
    resume: Callable[[Any], Step] = flow.send
    answer: Any = None
    try:
        while True:
            try:
                step = resume(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                work = step.ado()
                answer = await (work if step.interruptible else finish(work))
                resume = flow.send
            except GeneratorExit:
                flow.close()
                raise
            except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
                answer, resume = error, flow.throw
    finally:
        answer = None


async def ask(store: Store, verb: str, *args: Any, name: str) -> Any:
    """Call the store plainly on the event loop, to the end; in line where the call cannot block."""
    if store.never_blocks:
        return store.call(verb, *args, name=name)
    return await store.acall(verb, *args, name=name)
