"""One granted hold of a lock, in the hands of the program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from asgiref.sync import sync_to_async

from .core import flow
from .core import handle as handles
from .core.durations import MIN_TTL, Duration, check_ttl
from .core.flow import Attempt, Flow
from .core.hold import Hold, State
from .core.watchdog import watchdog
from .core.worker import callbacks
from .exceptions import (
    LockBackendError,
    LockNotHeldError,
    UnsupportedOperationError,
)
from .fencing import fields as fencing
from .fencing.fields import Fence
from .signals import Tell, heard, lock_acquired
from .transactions import Ask, open_transactions

if TYPE_CHECKING:
    from django.db.models import Model

__all__ = ["Lease"]

logger = logging.getLogger("django_distlock")


class Lease:
    """A hold of a lock, from its grant to its release; a context manager that releases it.

    Made by `Lock.acquire` and by the `with` statement of a Lock, not by hand. Usable from any
    thread. It cannot be pickled or copied: `detach` hands it to another process.
    """

    __slots__ = ("__weakref__", "_done", "_hold")

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._done = False

    # -- what it is --------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._hold.claim.name

    @property
    def alias(self) -> str:
        """The alias of the backend."""
        return self._hold.backend.alias

    @property
    def ttl(self) -> float:
        """The seconds for which a renewal is good."""
        return self._hold.claim.ttl

    @property
    def fencing_token(self) -> int:
        """The number that is greater for every later grant of the same name.

        Raises UnsupportedOperationError on a backend that cannot promise that.
        """
        if not self._hold.backend.supports_fencing:
            raise UnsupportedOperationError(
                "This backend has no fencing tokens", name=self.name, alias=self.alias
            )
        return self._hold.fencing_token

    @property
    def shared(self) -> bool:
        """Whether others that share the lock may hold it at the same time."""
        return self._hold.claim.shared

    @property
    def slot(self) -> int | None:
        """The holder's own number, from 0 to below the limit of the lock; None without a limit."""
        return self._hold.slot

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost, or its time is up."""
        return self._hold.is_lost()

    def remaining(self) -> float:
        """Return the seconds for which the holder may still rely on the lease; 0 when lost."""
        hold = self._hold
        if self._done or hold.is_lost() or hold.state is not State.ACTIVE:
            return 0.0
        return hold.left()

    def check(self) -> None:
        """Raise LeaseLostError once the lease may have expired.

        Asks the local clock and what is already known, never the store, so it is cheap enough for
        every step of a loop. If the thread or task that acquired the lease has ended, the caller
        becomes its holder. Raises LockNotHeldError after a release.
        """
        hold = self._hold
        if self._done or (not hold.is_lost() and hold.state is not State.ACTIVE):
            self._not_held()
        if hold.state is State.LOST:
            raise hold.lost_error()
        if hold.party_ended():
            self._take_over()

    def _take_over(self) -> None:
        """Make the calling thread or task the holder, and have the lease renewed for it."""
        self._hold.adopt()
        watchdog.watch(self._hold)

    def on_lost(self, callback: Callable[[Lease], Any]) -> None:
        """Have ``callback(lease)`` called, on a thread of its own, when the lease is lost.

        At once when it is lost already. The callback is given a new Lease object of the same hold,
        equal in effect to this one, not identical.
        """
        # Not with this object, to which the hold would then refer, and it to the hold: dropped
        # together they have to be gone at once, not when the garbage collector comes.
        make = type(self)
        what = f"on_lost of lock {self.name!r:.200}"
        self._hold.tell_when_lost(lambda hold: callbacks.submit(lambda: callback(make(hold)), what))

    def adopt(self) -> None:
        """Make the calling thread or task the holder: re-entry and renewal go by it from now on.

        Also renewal that had stopped because the thread or task before it has ended. Raises
        LeaseLostError when that was too long ago.
        """
        self.check()
        self._take_over()

    # -- renew -------------------------------------------------------------------------------------

    def renew(self, ttl: Duration | None = None) -> None:
        """Start the ttl again from now, with the same length or with ``ttl`` seconds.

        Raises LeaseLostError when the lock is no longer ours and LockBackendError when the store
        failed; the lease then lasts until its old deadline.
        """
        flow.run(self._renew(ttl))

    async def arenew(self, ttl: Duration | None = None) -> None:
        """Renew as `renew`."""
        await flow.arun(self._renew(ttl))

    def _renew(self, ttl: Duration | None) -> Flow[None]:
        hold = self._hold
        if ttl is not None:
            longest = hold.backend.longest_ttl
            ttl = check_ttl(ttl, name=self.name, alias=self.alias, longest=longest)
        self.check()
        if not (yield from hold.renew(ttl)):
            raise self._hold.lost_error()

    def downgrade(self) -> None:
        """Share a lock from now on that was held alone; no other holds it alone in between.

        Waiters that share it get it now. The lease makes no fenced writes any more. Raises
        LockNotHeldError when it is shared already, has a limit, was taken more than once or is part
        of a transaction; UnsupportedOperationError where the backend has no shared locks; else as
        `renew`.
        """
        flow.run(self._downgrade())

    async def adowngrade(self) -> None:
        """Downgrade as `downgrade`."""
        await flow.arun(self._downgrade())

    def _downgrade(self) -> Flow[None]:
        hold = self._hold
        self.check()
        if not hold.backend.supports_shared:
            raise UnsupportedOperationError(
                f"{type(hold.backend).__name__} has no shared locks",
                name=self.name,
                alias=self.alias,
            )
        kept = hold.bound is not None or hold.deferred is not None
        if not hold.claim.is_exclusive or hold.count > 1 or kept:
            why = "it is not held alone" if not hold.claim.is_exclusive else "it was taken twice"
            why = "it is part of an open transaction" if kept else why
            raise LockNotHeldError(f"Not shared: {why}", name=self.name, alias=self.alias)
        if not (yield from hold.downgrade()):
            raise hold.lost_error()

    # -- release -----------------------------------------------------------------------------------

    def release(self) -> None:
        """Free the lock; of nested acquisitions the last release frees it.

        Inside an open transaction it follows IN_TRANSACTION: by default the lock is kept until
        the transaction has ended. Within its min_hold the name stays taken for the rest of that.
        Raises LeaseLostError when the lease was lost, LockNotHeldError when it was released before,
        LockBackendError when the store failed (call it again, or leave the lock to its ttl: it is
        not renewed any more).
        """
        self._end(self._release)

    async def arelease(self) -> None:
        """Release as `release`."""
        await self._aend(self._release)

    def resign(self) -> None:
        """Release as `release`, and at once, also within the lock's min_hold."""
        self._hold.min_hold = 0.0
        self.release()

    async def aresign(self) -> None:
        """Resign as `resign`."""
        self._hold.min_hold = 0.0
        await self.arelease()

    def _end(self, rest: Callable[[Attempt | bool], Flow[None]]) -> None:
        """Release by one plain call, as most are; else by ``rest``, told what that has come to."""
        ahead: Attempt | bool | None = None
        try:
            ahead = False if self._done else self._hold.release_now()
            if ahead is True:
                self._done = True
            else:
                flow.run(rest(ahead))
        except BaseException:
            self._drop_unfinished(ahead)
            raise

    async def _aend(self, rest: Callable[[Attempt | bool], Flow[None]]) -> None:
        """Release as `_end`, on the event loop."""
        ahead: Attempt | bool | None = None
        try:
            ahead = False if self._done else await self._hold.arelease_now()
            if ahead is True:
                self._done = True
            else:
                await flow.arun(rest(ahead))
        except BaseException:
            self._drop_unfinished(ahead)
            raise

    def _drop_unfinished(self, ahead: Attempt | bool | None) -> None:
        """Give up after an interruption of the plain call, or before a flow has gone on from it."""
        if ahead is None or (isinstance(ahead, Attempt) and not ahead.taken):
            self._drop()

    def _release(self, ahead: Attempt | bool = False) -> Flow[None]:
        hold = self._hold
        if isinstance(ahead, Attempt):
            yield from self._finish(hold.finish_release(first=ahead))
            return
        if self._done:
            self._not_held()
        if hold.state is State.LOST:
            self._done = True
            raise hold.lost_error()  # to each of nested blocks: each did work that may be void
        if hold.state is State.DETACHED:
            self._not_held()
        # A grant inside a TestCase's transaction is visible to no other connection: it is released
        # at once, as a release after the block's end could fall into the next test, and be undone.
        bound = hold.bound
        in_testcase = bound is not None and bound.in_testcase
        judged = hold.backend.conf.in_transaction == "hold" and not in_testcase
        if hold.count <= 1 and hold.deferred is None and judged:
            yield from self._finish(self._defer_and_free())
        else:
            yield from self._finish(hold.release())

    def _finish(self, release: Flow[None]) -> Flow[None]:
        try:
            yield from release
        except (LockNotHeldError, LockBackendError):
            raise
        except BaseException:
            self._drop()  # cancelled or interrupted: no caller is left to repeat the release
            raise
        self._done = True

    def _defer_and_free(self) -> Flow[None]:
        yield Ask(self._defer)
        yield from self._hold.release()

    def _defer(self) -> None:
        blocks, by_hand = open_transactions()
        if blocks:
            self._hold.keep_until_ended(blocks)
        elif by_hand:
            # Django does not report the end of a transaction begun by hand, so do not wait for it.
            logger.warning(
                "Lock %.200r of alias %r is released inside an open transaction: the next "
                "holder will not see what was written. Use lock(...).atomic().",
                self.name,
                self.alias,
            )

    def _keep(self, seconds: float) -> None:
        """Leave the lock in the store for ``seconds`` from now; release it if that is too short."""
        if seconds < MIN_TTL:
            flow.run(self._leave(None))
            return
        try:
            self.renew(seconds)
        finally:
            self._hold.leave(State.ACTIVE, State.DETACHED, "it is kept for a while")
            self._done = True

    # -- as a context manager ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.check()  # else the body would run without the lock
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self._done:  # released or transferred in the body, on purpose
            self._end(partial(self._leave, exc))

    async def __aenter__(self) -> Self:
        self.check()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if not self._done:
            await self._aend(partial(self._leave, exc))

    def _leave(self, body_error: BaseException | None, ahead: Attempt | bool = False) -> Flow[None]:
        """Release at the end of a block: the body's error wins over ours, which is logged."""
        if self._done or self._hold.state is State.DETACHED:
            return  # released or transferred in the body, on purpose
        try:
            yield from self._release(ahead)
        except (LockNotHeldError, LockBackendError) as error:
            if isinstance(error, LockBackendError):
                self._drop()  # no caller will release it again
            if body_error is None:
                raise
            logger.error("While another error ended the block: %s", error)  # noqa: TRY400 - it says all
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        """Give the lease up without waiting for the store: it is released in the background."""
        hold = self._hold
        with hold.mutex:
            if self._done:
                return
            self._done = True
            if hold.is_kept_by_another():
                return
            # RELEASING where the release was interrupted before it reached the store.
            before = hold.state
            if before not in (State.ACTIVE, State.RELEASING):
                return
            hold.leave(before, State.RELEASED, "it was given up")
        hold.give_up()

    # -- fenced writes -----------------------------------------------------------------------------

    def _fence(self) -> Fence:
        token = self.fencing_token  # first: a backend without any is refused in any case
        if self.shared:
            raise UnsupportedOperationError(
                "A shared lease makes no fenced writes, as others hold the lock at the same time: "
                "take it without shared=True to write",
                name=self.name,
                alias=self.alias,
            )
        self.check()
        return Fence.of(token, self._hold.claim, self.alias)

    def save(
        self,
        instance: Model,
        *,
        using: str | None = None,
        update_fields: Collection[str] | None = None,
    ) -> None:
        """Save a model instance that has a fence, by its own `save()`.

        Raises LeaseLostError or LockNotHeldError when the lease is gone, FenceRejectedError when a
        newer holder has written the row, and the model's DoesNotExist when it was deleted; the
        instance is then as it was. A new instance is inserted with the token. What is no instance
        raises InvalidLockError.
        """
        fencing.save(self._fence(), instance, using=using, update_fields=update_fields)

    async def asave(
        self,
        instance: Model,
        *,
        using: str | None = None,
        update_fields: Collection[str] | None = None,
    ) -> None:
        """Save as `save`."""
        await sync_to_async(self.save)(instance, using=using, update_fields=update_fields)

    # -- to another process ------------------------------------------------------------------------

    def detach(self) -> str:
        """Give the lease away: return a str by which `attach` takes it up, in any process.

        It is not renewed until then, so it has to be attached within its ttl. The str is JSON, for
        a task's arguments; whoever has the str can release the lock. Where a lock ends with the
        process that took it (flag ``transferable``), only that process can attach it.
        """
        self.check()
        hold = self._hold
        kept = hold.bound is not None or hold.deferred is not None
        if hold.count > 1 or kept:
            why = "taken more than once" if hold.count > 1 else "part of an open transaction"
            raise LockNotHeldError(f"Not detached: it is {why}", name=self.name, alias=self.alias)
        if not hold.leave(State.ACTIVE, State.DETACHED, "it was detached"):
            self._not_held()
        self._done = True
        return handles.write(hold)

    @classmethod
    def attach(cls, handle: str) -> Self:
        """Take up a detached lease, renewing it at once; the calling thread is the holder.

        The handle is the right to the lock: attached twice, both leases hold it, and the first
        release frees it. Raises LeaseLostError when it ran out meanwhile, InvalidLockError when
        ``handle`` did not come from `detach`, UnsupportedOperationError when another process
        detached it and the backend's leases stay in theirs.
        """
        return flow.run(cls._attach(handle))

    @classmethod
    async def aattach(cls, handle: str) -> Self:
        """Attach as `attach`."""
        return await flow.arun(cls._attach(handle))

    @classmethod
    def _attach(cls, handle: str) -> Flow[Self]:
        hold = handles.read(handle)
        lease = cls(hold)
        if not (yield from hold.renew(None)):
            raise hold.lost_error()
        watchdog.watch(hold)
        if heard(lock_acquired):
            facts = {"name": lease.name, "lease": lease, "waited": 0.0, "attached": True}
            yield Tell(lock_acquired, lease.alias, facts, hold.label, hold)
        return lease

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Lease cannot be pickled: send lease.detach() and use Lease.attach()")

    # -- errors ------------------------------------------------------------------------------------

    def _not_held(self) -> NoReturn:
        detached = self._hold.state is State.DETACHED
        raise LockNotHeldError(
            "The lease was detached" if detached else "The lease was released already",
            name=self.name,
            alias=self.alias,
        )

    def __repr__(self) -> str:
        state = "released" if self._done else self._hold.state.value
        return f"<Lease {self.name!r:.140} alias={self.alias!r} {state}>"
