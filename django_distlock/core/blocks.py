"""Entering and leaving a lock: with, async with, decorator, once for `Lock` and `LockGroup`."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from django.db import transaction

from ..decorators import Decorates, Name, is_coroutine
from ..exceptions import InvalidLockError, LeaseLostError, LockNotAcquiredError, LockNotHeldError
from ..lease import Lease
from . import flow
from .durations import UNSET, Wait
from .flow import Flow
from .fork import after_fork
from .hold import Hold, acquirers
from .leaving import leave_all
from .registry import Me, party
from .threads import Mutex

__all__ = ["CancelScope", "Guard", "forget", "innermost", "push"]

logger = logging.getLogger("django_distlock")

T = TypeVar("T")

# -- what the open blocks got ----------------------------------------------------------------------

# A `Lock` keeps no state, so it is kept here. By the Lock object, which the `with` statement keeps
# alive; and by the party, as one Lock may be used by many at once. If the Lock object goes while a
# block is open, an interruption has ended the block before `__exit__` could begin: its leases are
# given up.
# Tuples, replaced at one stroke: read without the mutex, and an interruption costs none of them.
_entered: dict[int, tuple[tuple[Me, Any, weakref.ref[Any]], ...]] = {}
_mutex = Mutex()


def push(lock: object, got: Any) -> None:
    """Remember what a `with` block of ``lock`` got: leases, and what belongs to them."""
    key = id(lock)
    entrant = (party(), got, weakref.ref(lock, lambda _: _gone(key)))
    with _mutex:
        _entered[key] = (*_entered.get(key, ()), entrant)


def _gone(key: int) -> None:
    """Give up the leases of the blocks whose Lock object has gone."""
    with _mutex:
        entered = _entered.pop(key, ())
    for _, (got, _), _ in entered:
        for lease in got if isinstance(got, tuple) else (got,):
            lease._drop()


def forget(lock: object, got: object) -> None:
    """Forget that a `with` block of ``lock`` got ``got``, if that was remembered."""
    with _mutex:
        entered = _entered.get(id(lock), ())
        if len(entered) > 1:
            _entered[id(lock)] = tuple(each for each in entered if each[1] is not got)
        elif entered and entered[0][1] is got:
            del _entered[id(lock)]


def innermost(lock: object) -> Any:
    """Return what the innermost `with` block of ``lock`` got.

    A generator's block may end on another thread than it began (streaming responses): then it is
    the one of the same chain of calls, or the only one that is open for this Lock object. None
    when it cannot be told.
    """
    entered = _entered.get(id(lock), ())
    if len(entered) == 1:
        return entered[0][1]
    me = party()
    places = [i for i, (entrant, *_) in enumerate(entered) if entrant == me]
    places = places or [i for i, (entrant, *_) in enumerate(entered) if entrant[2] == me[2]]
    return entered[places[-1]][1] if places else None


def _forget_parent() -> None:
    """Have a mutex, in a forked child, that no thread of the parent's has locked."""
    global _mutex
    _mutex = Mutex()


after_fork(_forget_parent)


# -- blocks ----------------------------------------------------------------------------------------


def _leave_to_awaiter(called: int, task: asyncio.Task[Any]) -> None:
    """Have the leases that a task has returned be its awaiter's, as by gather() or create_task().

    Whatever stands around the call in that task, such as what traces it.
    """
    # To ask for exception() would keep asyncio from telling of one that is never retrieved.
    if not task.cancelled() and task._exception is None:
        got = task.result()
        for lease in got if isinstance(got, tuple) else (got,):
            if isinstance(lease, Lease) and lease._hold.party() is task:
                lease._hold.returned = True
    acquirers.discard(called)


class CancelScope:
    """Cancels a task once, and knows its own cancellation from a foreign one.

    Behaves as `asyncio.timeout`: the cancellation is taken back by `Task.uncancel` when the block
    ends, and a cancellation from elsewhere wins.
    """

    def __init__(self, hold: Hold) -> None:
        self._task: asyncio.Task[object] = cast("asyncio.Task[object]", asyncio.current_task())
        self._loop = asyncio.get_running_loop()
        self._before = self._task.cancelling()
        self._cancelled = False
        self._over = False
        self._told_by = hold.on_lost
        hold.tell_when_lost(self._lost)

    def _lost(self, hold: Hold) -> None:
        # On the thread that noticed. A loop that is closed has no body left to cancel.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self._over:
            self._cancelled = True
            self._task.cancel()

    def ended(self, error: BaseException | None) -> bool:
        """End the scope; return whether ``error`` is our own cancellation arriving."""
        self._over = True
        if self._lost in self._told_by:
            self._told_by.remove(self._lost)
        if not self._cancelled:
            return False
        return self._task.uncancel() <= self._before and isinstance(error, asyncio.CancelledError)


Entered: TypeAlias = tuple[T, Sequence[CancelScope]]
"""What a block got, and what cancels its body when that is lost."""


class Guard(ABC, Generic[T]):
    """Something to be acquired and held for a block of code; `T` is what a block gets.

    Subclasses say how to obtain it and which leases it consists of. A guard keeps no state, so one
    object may be used by many threads and tasks at once.
    """

    __slots__ = ()

    # Declared for the type checker; the dataclasses below define them.
    cancel_on_lost: bool

    @abstractmethod
    def _obtain(self, wait: Wait) -> Flow[T]:
        """Return a flow that acquires, or raises LockNotAcquiredError and leaves nothing."""

    def _obtain_now(self, wait: Wait) -> T:
        """Obtain in this thread."""
        return flow.run(self._obtain(wait))

    async def _aobtain_now(self, wait: Wait) -> T:
        """Obtain on the event loop."""
        return await flow.arun(self._obtain(wait))

    @abstractmethod
    def _leases(self, got: T) -> Sequence[Lease]:
        """Return the leases of what a block got, in the order of acquiring."""

    def _cancelling(self, got: T) -> Sequence[Lease]:
        """Return the leases whose loss cancels the body, where a loss does."""
        return self._leases(got)

    def _label(self) -> tuple[str | None, str | None]:
        """Return the name and alias for errors that concern no single lease."""
        return None, None

    # -- by hand -----------------------------------------------------------------------------------

    def acquire(self, *, wait: Wait = UNSET) -> T | None:
        """Return what was obtained, or None when the lock is still held at the end of the wait.

        ``wait`` is 0 (try once), seconds or a timedelta, or None (no limit), and overrides the
        lock's own. Keep what is returned: a lease that is dropped is not renewed any more. Raises
        AlreadyHeldError, LockInTransactionError, InvalidLockError, or LockBackendError when the
        store failed.
        """
        if self.cancel_on_lost:
            self._refuse_cancelling()
        try:
            return self._obtain_now(wait)
        except LockNotAcquiredError:
            return None

    async def aacquire(self, *, wait: Wait = UNSET) -> T | None:
        """Acquire as `acquire`."""
        if self.cancel_on_lost:
            self._refuse_cancelling()
        try:
            got = await self._aobtain_now(wait)
        except LockNotAcquiredError:
            return None
        who, called, _ = party()
        if isinstance(who, asyncio.Task) and called not in acquirers:
            acquirers.add(called)
            who.add_done_callback(partial(_leave_to_awaiter, called))
        return got

    def _refuse_cancelling(self) -> None:
        name, alias = self._label()
        raise InvalidLockError(
            "cancel_on_lost needs 'async with lock(...)', whose body it cancels: a thread "
            "cannot be cancelled. Call lease.check() between the steps of the work",
            name=name,
            alias=alias,
        )

    # -- as a block --------------------------------------------------------------------------------

    def __enter__(self) -> T:
        if self.cancel_on_lost:
            self._refuse_cancelling()
        # Nothing is called between the grant and the `try`, here as in `__exit__`: each call is a
        # place at which Python lets a signal's handler in, and that may raise.
        entered: Entered[T] | None = None
        try:
            entered = (self._obtain_now(UNSET), ())
            push(self, entered)
            return entered[0]
        except BaseException:
            self._give_up(entered)  # interrupted: no block begins that would take it off
            raise

    def _give_up(self, entered: Entered[T] | None) -> None:
        """Have the leases of an interrupted block released in the background."""
        if entered is not None:
            forget(self, entered)
            for lease in self._leases(entered[0]):
                lease._drop()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        entered: Entered[T] | None = None
        try:
            entered = innermost(self)
            forget(self, entered)
            if entered is None:
                self._not_entered(exc)
            elif len(leases := self._leases(entered[0])) == 1:
                leases[0].__exit__(exc_type, exc, tb)
            else:
                flow.run(self._leave(entered[0], exc))
        except BaseException:
            # Interrupted: what stays entered would be renewed for as long as the thread lives.
            self._give_up(entered or innermost(self))
            raise

    async def __aenter__(self) -> T:
        entered: Entered[T] | None = None
        try:
            entered = (await self._aobtain_now(UNSET), ())
            if self.cancel_on_lost:
                cancelling = self._cancelling(entered[0])
                scopes = tuple(CancelScope(lease._hold) for lease in cancelling)
                entered = (entered[0], scopes)
            push(self, entered)
            return entered[0]
        except BaseException:
            self._give_up(entered)
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        entered: Entered[T] | None = None
        try:
            entered = innermost(self)
            forget(self, entered)
            if entered is None:
                self._not_entered(exc)
                return
            got, scopes = entered
            # Every scope has to take its own cancellation back, so no short cut.
            ours = [scope.ended(exc) for scope in scopes]
            if any(ours):
                # The body was cancelled because the lease was lost: say so instead.
                await flow.arun(self._leave(got, None, exc))
            elif len(leases := self._leases(got)) == 1:
                await leases[0].__aexit__(exc_type, exc, tb)
            else:
                await flow.arun(self._leave(got, exc))
        except BaseException:
            self._give_up(entered or innermost(self))
            raise

    def _not_entered(self, body_error: BaseException | None) -> None:
        name, alias = self._label()
        error = LockNotHeldError(
            "This thread or task has not entered the block that it leaves",
            name=name,
            alias=alias,
        )
        if body_error is None:
            raise error
        logger.error("While another error ended the block: %s", error)

    def _leave(
        self, got: T, body_error: BaseException | None, cause: BaseException | None = None
    ) -> Flow[None]:
        """Release every lease, the last taken first, also when one of them fails."""
        raised = yield from leave_all(self._leases(got), body_error)
        try:
            if raised is not None:
                raise raised from (cause or raised.__cause__)
            if cause is not None:
                name, alias = self._label()
                raise LeaseLostError("The lease was lost", name=name, alias=alias) from cause
        finally:
            raised = None  # it refers to this frame: see flow.run

    @abstractmethod
    def _transaction_database(self, using: str | None) -> str | None:
        """Return the database whose transaction can hold it; raise if that is not ``using``."""

    @abstractmethod
    def _of_transaction(self) -> Guard[T]:
        """Return the same, to be held by the caller's transaction."""

    def atomic(self, using: str | None = None, *, xact: bool = False) -> Atomic[T]:
        """Hold the lock around a transaction: commit first, release after.

        A block or a decorator, as the lock itself. ``using`` is the database alias of the
        transaction. A lease lost in the body rolls the transaction back. Raises RuntimeError
        inside another transaction, whose commit would come too late.

        With ``xact`` the transaction itself holds the lock (``pg_advisory_xact_lock``): its commit
        or rollback frees it, without a second connection and without renewal. ``using`` is then
        the backend's database. Raises UnsupportedOperationError on entering where the backend is
        not the advisory one on PostgreSQL, or the transaction is not READ COMMITTED.
        """
        return Atomic(self, using, xact)

    @contextmanager
    def _around_transaction(self, using: str | None, xact: bool) -> Iterator[T]:
        if xact:
            with self._of_transaction()._in_transaction(using) as got:
                yield got
            return
        with self as got, transaction.atomic(using=using, durable=True):
            yield got
            for lease in self._leases(got):
                lease.check()

    @contextmanager
    def _in_transaction(self, using: str | None) -> Iterator[T]:
        using = self._transaction_database(using)
        got: T | None = None
        ended_by: BaseException | None = None
        try:
            with transaction.atomic(using=using, durable=True):
                got = self._obtain_now(UNSET)
                yield got
        except BaseException as error:
            ended_by = error
            raise
        finally:
            if got is not None:  # the server has freed it; here it is not held any more either
                flow.run(self._leave(got, ended_by))
            ended_by = None  # it refers to this frame: see flow.run


class Atomic(Decorates, Generic[T]):
    """A guard with a transaction inside it; made by `Guard.atomic`."""

    __slots__ = ("_database", "_entered", "_guard", "_xact", "default", "on_contention", "using")

    def __init__(self, guard: Any, database: str | None, xact: bool) -> None:
        self._guard = guard
        self._xact = xact
        self._database = database
        self._entered: list[tuple[int, AbstractContextManager[T]]] = []
        self.using = guard.using
        self.on_contention = guard.on_contention
        self.default = guard.default

    def _names(self) -> list[Name]:
        names: list[Name] = self._guard._names()
        return names

    def _bound_to(self, arguments: Mapping[str, Any]) -> Atomic[T]:
        return Atomic(self._guard._bound_to(arguments), self._database, self._xact)

    def _check(self, function: Callable[..., Any]) -> None:
        if is_coroutine(function):
            raise InvalidLockError(
                f"{function!r} is a coroutine function, and Django has no asynchronous "
                "transactions: decorate the synchronous function that has the transaction",
                alias=self.using,
            )
        super()._check(function)

    def __enter__(self) -> T:
        block = self._guard._around_transaction(self._database, self._xact)
        got: T = block.__enter__()
        self._entered.append((threading.get_ident(), block))
        return got

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # One object may be used by many threads, two of which are inside where a lease was lost.
        mine = [at for at, (who, _) in enumerate(self._entered) if who == threading.get_ident()]
        _, block = self._entered.pop(mine[-1])
        block.__exit__(exc_type, exc, tb)
