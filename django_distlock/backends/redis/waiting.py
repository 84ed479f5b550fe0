"""Waiting: one mailbox and one blocking connection for all waiters of a process, or of a loop.

A release writes to the mailbox which claim is next. One of the waiting threads reads it for all, on
a connection of its own: it blocks for SAFETY seconds at most. Then it sends the attempts of the
claims that were named, and of one claim for each lock that was not asked for lately, because a
crashed holder writes nothing. On an event loop a task reads.

The reader's own next attempt is sent along with the blocking command. The server runs it as soon as
that ends, which saves a round trip. So the waiter that has waited longest reads: it is next.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from threading import get_ident
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from ...core.clock import Clock
from ...core.fork import after_fork
from ...core.threads import Event, Mutex, Permits, living
from ...core.values import Claim, Grant, Refusal
from .client import AsyncClient, RedisClient
from .commands import Command
from .errors import asks_again
from .records import mailbox_of
from .scripts import SAFETY

__all__ = ["Answer", "LoopMailbox", "LoopMailboxes", "Mailboxes", "ThreadMailbox"]

M = TypeVar("M")

Answer: TypeAlias = Grant | bool
"""The result of a wait: see `BaseLockBackend.queue`."""

Handle: TypeAlias = Callable[[Any], None]

ASK: Final = True
"""The result for a waiter that has to ask by itself."""

LOOK = SAFETY / 4  # seconds between two searches for locks that have to be asked for


class Technique(Protocol):
    """What is needed of a technique."""

    def listen(
        self, claims: Iterable[Claim], home: bytes, seconds: float, *, known: bool
    ) -> list[Command]: ...
    def address(self, claim: Claim) -> bytes: ...
    def addressed(self, heard: Any) -> bytes: ...
    def may_go_along(self, claim: Claim) -> bool: ...
    def go_on(self, claim: Claim, home: bytes) -> Command: ...
    def understand(self, claim: Claim, answer: Any) -> Grant | Refusal: ...


@dataclass(eq=False, slots=True, weakref_slot=True)
class Waiter:
    """A claim that waits: ``since`` when in all, ``joined`` when it began to this time."""

    claim: Claim
    address: bytes
    since: float
    joined: float
    wake: Callable[[], None]
    answer: Answer | Exception | None = None
    thread: int = 0

    def tell(self, answer: Answer | Exception) -> None:
        """Say how the wait ends."""
        self.answer = answer
        self.wake()

    def ended(self) -> Answer:
        """Return the result of the wait, or raise its error; ASK if there is none."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return ASK if self.answer is None else self.answer


class Mailbox:
    """The waiters of one process, or of one loop, and what is sent and received for them."""

    def __init__(self, way: Technique, home: bytes, clock: Clock, *, along: bool) -> None:
        self.home = home
        self._way, self._clock = way, clock
        self._along = along
        # Weak: what an interrupted thread left here goes with its frame.
        self._waiters: weakref.WeakValueDictionary[str, Waiter] = weakref.WeakValueDictionary()
        self._mutex = Mutex()  # of these two
        self._order: list[tuple[float, str]] = []  # a heap; those that left go at the top
        self._ordered: set[str] = set()
        self._told: list[Waiter] = []
        self._asked: dict[str, float] = {}  # names, and when one was asked for last
        self._looked = 0.0
        self._lived = 0.0  # when the server was told last that we live

    def join(self, claim: Claim, since: float, wake: Callable[[], None]) -> Waiter:
        """Have a claim be asked for."""
        waiter = Waiter(claim, self._way.address(claim), since, self._clock(), wake)
        self._waiters[claim.owner] = waiter
        with self._mutex:
            if claim.owner not in self._ordered:
                self._ordered.add(claim.owner)
                heappush(self._order, (since, claim.owner))
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Ask for it no more."""
        self._waiters.pop(waiter.claim.owner, None)

    def waiting(self) -> list[Waiter]:
        """Return the waiters without a result."""
        return [each for each in living(self._waiters) if each.answer is None]

    def oldest(self) -> Waiter | None:
        """Return the waiter that has waited longest."""
        order = self._order
        with self._mutex:
            while order:
                owner = order[0][1]
                waiter = self._waiters.get(owner)
                if waiter is not None and waiter.answer is None:
                    return waiter
                heappop(order)
                self._ordered.discard(owner)
        return None

    def tell_all(self, answer: Answer | Exception) -> None:
        """End every wait."""
        for waiter in self.waiting():
            waiter.tell(answer)

    def turn(self, reader: Waiter, seconds: float) -> tuple[list[Command], list[Handle]]:
        """Return what to send, and what takes the answer to each of that; one of them blocks."""
        commands: list[Command] = []
        handles: list[Handle] = []
        along = reader if self._may_go_along(reader) else None
        sent = self._clock()
        for waiter in self._to_ask(along):
            if self._may_go_along(waiter):
                commands.append(self._way.go_on(waiter.claim, self.home))
                handles.append(partial(self._answered, waiter, sent))
            else:
                waiter.tell(ASK)
        if reader.answer is None:
            known = sent - self._lived < SAFETY / 2
            if not known:
                self._lived = sent
            waits = self._way.listen(self._claims(), self.home, seconds, known=known)
            commands += waits
            handles += [_sound] * (len(waits) - 1)
            handles.append(partial(self._heard, along))
            if along is not None:
                commands.append(self._way.go_on(along.claim, self.home))
                handles.append(partial(self._answered, along, sent))
        return commands, handles

    def _claims(self) -> Iterator[Claim]:
        for waiter in self.waiting():
            yield waiter.claim

    def _may_go_along(self, waiter: Waiter) -> bool:
        return self._along and self._way.may_go_along(waiter.claim)

    def _to_ask(self, along: Waiter | None) -> list[Waiter]:
        """Return the claims to ask for: those named, and the first of each neglected lock."""
        told, self._told = self._told, []
        found = {id(each): each for each in told if each.answer is None}
        now = self._clock()
        if now - self._looked >= LOOK:
            self._looked = now
            names: dict[str, Waiter] = {}
            for waiter in self.waiting():
                first = names.setdefault(waiter.claim.key, waiter)
                if waiter.since < first.since:
                    names[waiter.claim.key] = waiter
            self._asked = {key: self._asked.get(key, names[key].joined) for key in names}
            for key, first in names.items():
                if now - self._asked[key] >= 0.8 * SAFETY and first is not along:
                    found[id(first)] = first
        return list(found.values())

    def _answered(self, waiter: Waiter, sent: float, answer: Any) -> None:
        """Pass on the answer to an attempt that was sent at ``sent``."""
        if isinstance(answer, Exception):
            waiter.tell(ASK)  # and find out what is the matter
            return
        meant = self._way.understand(waiter.claim, answer)
        if isinstance(meant, Grant):
            waiter.tell(meant._replace(asked=sent))  # it may be long until the waiter reads this
        elif meant.queue:
            self._asked[waiter.claim.key] = self._clock()
        elif waiter.answer is None and self._waiters.get(waiter.claim.owner) is waiter:
            self.tell_all(ASK)  # it took this process for crashed, or lost its data: queue again

    def _heard(self, along: Waiter | None, answer: Any) -> None:
        """Note whose turn it is; ``along`` is the waiter whose attempt follows."""
        _sound(answer)
        if answer is None:
            return
        address = self._way.addressed(answer)
        if along is not None and along.address == address:
            return
        found = [each for each in self.waiting() if each.address == address]
        if found:
            first = min(found, key=lambda each: each.since)
            if self._may_go_along(first):
                self._told.append(first)
            else:
                first.tell(ASK)


def _sound(answer: Any) -> None:
    if isinstance(answer, Exception):
        raise answer


def turn_of(left: float) -> float:
    """Return how long to block.

    Spread out, so that the waiters for a crashed holder's lock do not all ask at once.
    """
    return max(0.001, min(left, SAFETY * random.uniform(0.8, 1.0)))  # noqa: S311 - no secret


class ThreadMailbox(Mailbox):
    """The mailbox of a process's threads, one of which reads it for all."""

    def __init__(
        self, way: Technique, home: bytes, clock: Clock, client: RedisClient, *, along: bool
    ) -> None:
        super().__init__(way, home, clock, along=along)
        self._client = client
        self._chair = Permits(1)
        self._reader: weakref.ref[Waiter] | None = None

    def wait(self, claim: Claim, since: float, limit: float, patience: float) -> Answer:
        """Wait for up to ``limit`` seconds.

        ``patience`` is how long the server may take to answer.
        """
        reader = None if self._reader is None else self._reader()
        if reader is not None and reader.thread == get_ident():
            return False  # in the handler of a signal, on the thread that reads for all
        event = Event()
        waiter = self.join(claim, since, event.set)
        end = self._clock() + limit
        chair, late = None, False
        try:
            while waiter.answer is None and (left := end - self._clock()) > 0:
                first = self.oldest() is waiter or late  # late: the oldest does not come
                if first and (chair := self._chair.take()) is not None:
                    waiter.thread = get_ident()
                    self._reader = weakref.ref(waiter)
                    self._read(waiter, end, patience)
                    break
                late = not event.wait(left if self._chair else min(left, LOOK))
                event.clear()
        finally:
            self.leave(waiter)
            if chair is not None:
                self._reader = None
                self._chair.release(chair)
                if (following := self.oldest()) is not None:
                    following.wake()
        return waiter.ended()

    def _read(self, waiter: Waiter, end: float, patience: float) -> None:
        """Read for all until the reader's own wait is over."""
        node = self._client.node_of(self.home, patience)
        lent = node.lend(patience)
        try:
            if lent[0].is_stale():  # and perhaps forgotten in silence: it would not be noticed soon
                lent[0].drop()
            while waiter.answer is None and (left := end - self._clock()) > 0:
                seconds = turn_of(left)
                commands, handles = self.turn(waiter, seconds)
                if commands:
                    lent[0].send(commands, patience)
                for handle in handles:
                    handle(lent[0].receive(seconds + patience))
        except BaseException as error:
            lent[0].drop()
            self._lived = 0.0
            self.tell_all(ASK)  # what was told may be lost with the connection
            if not (isinstance(error, Exception) and asks_again(error)):
                raise
            waiter.answer = False
        finally:
            node.give_back(lent)


class LoopMailbox(Mailbox):
    """The mailbox of an event loop, which a task reads while others wait."""

    def __init__(
        self,
        way: Technique,
        home: bytes,
        clock: Clock,
        client: AsyncClient,
        *,
        along: bool,
        patience: float,
    ) -> None:
        super().__init__(way, home, clock, along=along)
        self._client, self._patience = client, patience
        self._task: asyncio.Task[None] | None = None

    async def wait(self, claim: Claim, since: float, limit: float) -> Answer:
        """Wait as `ThreadMailbox.wait`."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not told.done():
                told.set_result(None)

        waiter = self.join(claim, since, wake)
        try:
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._read())
            await asyncio.wait([told], timeout=limit)
        finally:
            self.leave(waiter)
        return waiter.ended()

    async def _read(self) -> None:
        """Read while there are waiters."""
        try:
            node = await self._client.node_of(self.home, self._patience)
            connections = await node.loops.mine()
            connection = await connections.lend(self._patience)
        except Exception as error:  # noqa: BLE001 - raised by each who waits
            self._task = None
            self.tell_all(error)
            return
        try:
            if connection.is_stale():
                await connection.drop()
            while (reader := self.oldest()) is not None:
                seconds = turn_of(SAFETY)
                commands, handles = self.turn(reader, seconds)
                if commands:
                    await connection.send(commands, self._patience)
                for handle in handles:
                    handle(await connection.receive(seconds + self._patience))
        except Exception as error:  # noqa: BLE001 - raised by each who waits
            await connection.drop()
            self._lived = 0.0
            self.tell_all(ASK if asks_again(error) else error)
        except BaseException:
            await connection.drop()
            self.tell_all(ASK)
            raise
        finally:
            self._task = None  # a later waiter starts another one
            await connections.give_back(connection)

    def cancel(self) -> None:
        """End the reading."""
        if self._task is not None:
            self._task.cancel()


class Mailboxes(Generic[M]):
    """The mailboxes of a process or an event loop: one, or in a cluster one for each hash tag."""

    def __init__(self, make: Callable[[bytes], M], base: str) -> None:
        self._make, self._base = make, base
        self._reset()
        after_fork(self._reset)

    def _reset(self) -> None:
        self._id = secrets.token_urlsafe(12)
        self._made: dict[int, M] = {}

    def of(self, tag: int) -> M:
        """Return the mailbox of a tag."""
        found = self._made.get(tag)
        if found is None:
            made = self._make(mailbox_of(self._base, tag, self._id))
            found = self._made.setdefault(tag, made)
        return found


class LoopMailboxes(Mailboxes[LoopMailbox]):
    """The mailboxes of one event loop, which ends their reading before it ends."""

    async def aclose(self) -> None:
        """End all reading."""
        for each in self._made.values():
            each.cancel()
