"""Backends whose primitives are generators of requests: written once, for threads and event loops.

An operation is a generator that yields requests of its store and is sent their answers, or has
their errors thrown in. `FlowBackend` carries them out by the two drivers of `core.flow`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeVar

from ..core import flow
from ..core.clock import Deadline
from ..core.flow import MIN_ATTEMPT_TIMEOUT, Flow, carried
from ..core.threads import Event
from ..core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from .base import BaseLockBackend

__all__ = ["FlowBackend", "Operation", "Rest", "Standby", "together"]

T = TypeVar("T")

Operation: TypeAlias = Generator[Any, Any, T]
"""Yields requests, and is sent the answers."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Pause between two requests; the answer is whether there was time for it before ``ends``."""

    interruptible: ClassVar[bool] = True

    seconds: float
    ends: float = math.inf

    def _fits(self) -> bool:
        return self.ends - time.monotonic() > self.seconds + 0.01

    def do(self) -> bool:
        if fits := self._fits():
            time.sleep(self.seconds)
        return fits

    async def ado(self) -> bool:
        if fits := self._fits():
            await asyncio.sleep(self.seconds)
        return fits


@dataclass(frozen=True, slots=True)
class Standby:
    """Wait for an event of this process, for some seconds at most; the answer is if it was set."""

    interruptible: ClassVar[bool] = True

    event: Event
    seconds: float

    def do(self) -> bool:
        return self.event.wait(self.seconds)

    async def ado(self) -> bool:
        return await self.event.await_set(self.seconds)


def together(
    operations: Iterable[Operation[T]], ask: Callable[[list[Any]], Operation[list[Any]]]
) -> Operation[list[T]]:
    """Carry operations out in step, and return their results in the order given.

    ``ask`` is given what each of them asks for next, and returns the answers in the same order,
    errors among them as objects. Once an operation has failed, the others are not carried on.
    """
    going = dict(enumerate(operations))
    answers: dict[int, Any] = dict.fromkeys(going)
    results: dict[int, T] = {}
    error: BaseException | None = None
    try:
        while going:
            asked: dict[int, Any] = {}
            for number, operation in list(going.items()):
                answer = answers[number]
                resume = operation.throw if isinstance(answer, Exception) else operation.send
                try:
                    asked[number] = resume(answer)
                except StopIteration as stop:
                    results[number] = stop.value
                    del going[number]
            given: list[Any] = []
            if asked:
                try:
                    given = yield from ask(list(asked.values()))
                except Exception as failure:  # noqa: BLE001 - each of them decides
                    given = [failure] * len(asked)
            answers = dict(zip(asked, given, strict=True))
        return [results[number] for number in sorted(results)]
    except BaseException as failure:
        error = failure
        raise
    finally:
        if error is not None:
            for operation in going.values():
                operation.close()
        answers, error = {}, None  # see flow.run


class FlowBackend(BaseLockBackend):
    """A backend that has an operation for each primitive, and says how a request is carried out.

    A subclass writes `carry` and the ``*_flow`` methods; the primitives and their async twins are
    made of those here.
    """

    native_async = True
    # With wait=0 the store is asked once, and the claim does not queue.
    min_attempt_timeout = 0.0
    batch: ClassVar[int] = 10_000  # claims that one `renew_flow` is given
    # Errors after which an operation is begun once more, while there is time.
    begins_again: tuple[type[Exception], ...] = ()
    # What is raised, one of `store_errors`, where an answer has another form than it should have.
    answer_error: Callable[[str], Exception] = ValueError

    # -- what a store writes -----------------------------------------------------------------------

    def carry(self, request: Any, ends: float) -> Flow[Any]:
        """Return a flow that carries out one request before ``ends``, of `time.monotonic`.

        Here those that are steps already.
        """
        if isinstance(request, Rest):
            request = replace(request, ends=min(request.ends, ends))
        return (yield request)

    def acquire_flow(self, claim: Claim, *, join: bool) -> Operation[Grant | Refusal]:
        """Attempt once; with ``join`` enter the queue when refused."""
        raise NotImplementedError

    def acquire_many_flow(self, claims: Sequence[Claim]) -> Operation[list[Grant | None]]:
        """Attempt each once, without queueing."""
        begun = [self.acquire_flow(claim, join=False) for claim in claims]
        answers = yield from together(begun, self.ask_flow)
        return [each if isinstance(each, Grant) else None for each in answers]

    def renew_flow(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        """Restart the ttl of each claim that its owner holds."""
        raise NotImplementedError

    def release_flow(self, claim: Claim) -> Operation[bool]:
        """Free the lock, and withdraw from its queue."""
        raise NotImplementedError

    def release_many_flow(self, claims: Sequence[Claim]) -> Operation[list[bool]]:
        """Free several locks."""
        return together(map(self.release_flow, claims), self.ask_flow)

    def ask_flow(self, requests: list[Any]) -> Operation[list[Any]]:
        """Ask what several operations ask for next; return the answers, errors among them.

        One after the other, where a store has no way to ask them together.
        """
        answers: list[Any] = []
        for request in requests:
            try:
                answers.append((yield request))
            except self.store_errors as error:
                answers.append(error.with_traceback(None))
        return answers

    def withdraw_flow(self, claim: Claim) -> Operation[bool]:
        """Leave the queue."""
        return self.release_flow(claim)

    def queue_flow(self, claim: Claim, limit: float, left: float | None) -> Operation[bool | Grant]:
        """Wait in the queue; return the grant if it is known by then, False if one cannot wait."""
        raise NotImplementedError

    def holders_flow(self, name: str) -> Operation[list[LockInfo]]:
        """Return all who hold a lock: one at most, where there cannot be several."""
        raise NotImplementedError

    def inspect_flow(self, name: str) -> Operation[LockInfo | None]:
        """Inspect a lock: see who holds it, the first one where there are several."""
        held = yield from self.holders_flow(name)
        return held[0] if held else None

    def clean_flow(self, policy: CleanPolicy, cursor: str) -> Operation[Cleaned]:
        """Remove some of what is idle."""
        raise NotImplementedError

    # -- carrying operations out -------------------------------------------------------------------

    def do(
        self, begin: Callable[[], Operation[T]], limit: float | None = None, *, each: bool = False
    ) -> T:
        """Carry an operation out in this thread, in ``limit`` seconds (COMMAND_TIMEOUT).

        Or ``each`` of its requests, where there is one for each of many locks.
        """
        return flow.run(self._carried(begin, limit, each=each))

    async def ado(
        self, begin: Callable[[], Operation[T]], limit: float | None = None, *, each: bool = False
    ) -> T:
        """Carry an operation out on the event loop."""
        return await flow.arun(self._carried(begin, limit, each=each))

    def _carried(
        self, begin: Callable[[], Operation[T]], limit: float | None, *, each: bool
    ) -> Flow[T]:
        seconds = self.command_timeout if limit is None else limit
        deadline = Deadline(time.monotonic() + seconds, time.monotonic)

        def carry(request: Any) -> Flow[Any]:
            if each:
                deadline.at = time.monotonic() + seconds
            else:
                deadline.put_off()
            return self.carry(request, deadline.at)

        while True:
            try:
                return (yield from carried(begin(), carry, self.answer_error))
            except self.begins_again:
                if not deadline.left():
                    raise

    def _patience(self, limit: float) -> float:
        """Return how long an attempt may take."""
        return min(self.command_timeout, max(limit, MIN_ATTEMPT_TIMEOUT))

    def _turn(self, limit: float, left: float | None) -> float:
        """Return how long a wait in the queue may take, with its questions."""
        spare = self.command_timeout if left is None else max(left - limit, MIN_ATTEMPT_TIMEOUT)
        return limit + min(spare, self.command_timeout)

    # -- the primitives, for threads and event loops -----------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return self.do(lambda: self.acquire_flow(claim, join=limit > 0), self._patience(limit))

    async def atry_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        return await self.ado(
            lambda: self.acquire_flow(claim, join=limit > 0), self._patience(limit)
        )

    def try_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        return self.do(lambda: self.acquire_many_flow(claims), self._patience(limit), each=True)

    async def atry_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        return await self.ado(
            lambda: self.acquire_many_flow(claims), self._patience(limit), each=True
        )

    def renew(self, claim: Claim) -> bool:
        return self.renew_many([claim])[0]

    async def arenew(self, claim: Claim) -> bool:
        return (await self.arenew_many([claim]))[0]

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for some in self._batches(claims):
            begin, each = partial(self.renew_flow, some), len(some) > 1
            done += self.do(begin, each=each)
        return done

    async def arenew_many(self, claims: Sequence[Claim]) -> list[bool]:
        done: list[bool] = []
        for some in self._batches(claims):
            begin, each = partial(self.renew_flow, some), len(some) > 1
            done += await self.ado(begin, each=each)
        return done

    def _batches(self, claims: Sequence[Claim]) -> list[Sequence[Claim]]:
        return [claims[i : i + self.batch] for i in range(0, len(claims), self.batch)]

    def release(self, claim: Claim) -> bool:
        return self.do(lambda: self.release_flow(claim))

    async def arelease(self, claim: Claim) -> bool:
        return await self.ado(lambda: self.release_flow(claim))

    def release_many(self, claims: Sequence[Claim]) -> list[bool]:
        return self.do(lambda: self.release_many_flow(claims), each=True)

    async def arelease_many(self, claims: Sequence[Claim]) -> list[bool]:
        return await self.ado(lambda: self.release_many_flow(claims), each=True)

    def withdraw(self, claim: Claim) -> bool:
        return self.do(lambda: self.withdraw_flow(claim))

    async def awithdraw(self, claim: Claim) -> bool:
        return await self.ado(lambda: self.withdraw_flow(claim))

    def queue(self, claim: Claim, limit: float, left: float | None) -> bool | Grant:
        return self.do(lambda: self.queue_flow(claim, limit, left), self._turn(limit, left))

    async def aqueue(self, claim: Claim, limit: float, left: float | None) -> bool | Grant:
        return await self.ado(lambda: self.queue_flow(claim, limit, left), self._turn(limit, left))

    def inspect(self, name: str) -> LockInfo | None:
        return self.do(lambda: self.inspect_flow(name), each=True)

    async def ainspect(self, name: str) -> LockInfo | None:
        return await self.ado(lambda: self.inspect_flow(name), each=True)

    def holders(self, name: str) -> list[LockInfo]:
        return self.do(lambda: self.holders_flow(name), each=True)

    async def aholders(self, name: str) -> list[LockInfo]:
        return await self.ado(lambda: self.holders_flow(name), each=True)

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        if not self.cleans:
            return super().clean_batch(policy, cursor)
        return self.do(lambda: self.clean_flow(policy, cursor), each=True)
