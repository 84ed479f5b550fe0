"""One granted hold of a lock, in the hands of the program."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from . import flow
from .backoff import delays
from .durations import Duration, check_ttl
from .exceptions import InvalidLockError, LeaseLostError, LockBackendError, LockNotHeldError
from .flow import Flow, Granted, drift
from .handler import locks
from .held import Hold, State
from .signals import Tell, lock_released, lock_renewed
from .transactions import Ask, Block, Ending, open_blocks
from .values import Claim
from .watchdog import abandon, watchdog, worker_of
from .worker import events

if TYPE_CHECKING:
    from .backends.base import BaseLockBackend

__all__ = ["Lease", "free", "keep_until_ended", "renew_hold"]

logger = logging.getLogger("django_distlock")

RETRIES = 6  # of a release or renewal that met a conflict in the store: about 0.4 s together


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
        """The number that is greater for every later grant of the same name."""
        return self._hold.granted.fencing_token

    @property
    def lost(self) -> bool:
        """Whether the lease is known to be lost, or its time is up."""
        return self._hold.lapse()

    def remaining(self) -> float:
        """Return the seconds for which the holder may still rely on the lease; 0 when lost."""
        hold = self._hold
        if self._done or hold.lapse() or hold.state is not State.ACTIVE:
            return 0.0
        return max(0.0, hold.deadline - hold.backend.clock())

    def check(self) -> None:
        """Raise LeaseLostError when it is no longer sure that the lock is ours.

        Asks the local clock and what is already known, never the store, so it is cheap enough for
        every step of a loop. Raises LockNotHeldError after a release.
        """
        if self._done or (not self._hold.lapse() and self._hold.state is not State.ACTIVE):
            self._not_held()
        if self._hold.state is State.LOST:
            self._was_lost()

    def on_lost(self, callback: Callable[[Lease], Any]) -> None:
        """Have ``callback(lease)`` called, on a thread of its own, when the lease is lost."""
        self._hold.on_lost.append(lambda hold: events.submit(lambda: callback(self)))

    def adopt(self) -> None:
        """Make the calling thread or task the holder: re-entry and renewal go by it from now on."""
        self.check()
        self._hold.adopt()

    # -- renew -------------------------------------------------------------------------------------

    def renew(self, ttl: Duration | None = None) -> None:
        """Start the ttl anew from now, with the same length or with ``ttl`` seconds.

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
        if not (yield from renew_hold(hold, ttl)):
            self._was_lost()

    # -- release -----------------------------------------------------------------------------------

    def release(self) -> None:
        """Free the lock; of nested acquisitions the last release frees it.

        Inside an open transaction it follows IN_TRANSACTION: by default the lock is kept until
        the transaction has ended. Raises LeaseLostError when the lease was lost, LockNotHeldError
        when it was released before, LockBackendError when the store failed (call it again, or
        leave the lock to its ttl: it is not renewed any more).
        """
        flow.run(self._release())

    async def arelease(self) -> None:
        """Release as `release`."""
        await flow.arun(self._release())

    def _release(self) -> Flow[None]:
        if self._done:
            self._not_held()
        hold = self._hold
        if hold.count > 1:
            hold.count -= 1
            self._done = True
            return
        if hold.state in (State.LOST, State.DETACHED):
            self._done = True
            self._was_lost() if hold.state is State.LOST else self._not_held()
        if hold.deferred is None and hold.backend.conf.in_transaction in ("hold", "warn"):
            yield Ask(self._defer)
        if hold.deferred is not None:
            hold.count = 0
            self._done = True
            return
        yield from free(hold)
        self._done = True

    def _defer(self) -> None:
        if blocks := open_blocks():
            if self._hold.backend.conf.in_transaction == "hold":
                keep_until_ended(self._hold, blocks)
            else:
                logger.warning(
                    "Lock %.200r of alias %r is released inside an open transaction: the next "
                    "holder will not see what was written. Use lock(...).atomic().",
                    self.name,
                    self.alias,
                )

    # -- as a context manager ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        flow.run(self._leave(exc))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await flow.arun(self._leave(exc))

    def _leave(self, body_error: BaseException | None) -> Flow[None]:
        """Release at the end of a block: the body's error wins over ours, which is logged."""
        if self._done or self._hold.state is State.DETACHED:
            return  # released or handed over in the body, on purpose
        try:
            yield from self._release()
        except (LockNotHeldError, LockBackendError) as error:
            if isinstance(error, LockBackendError):
                abandon(self._hold.backend, self._hold.claim)  # nobody will call release again
                self._done = True
            if body_error is None:
                raise
            logger.error("While another error ended the block: %s", error)

    # -- to another process ------------------------------------------------------------------------

    def detach(self) -> str:
        """Give the lease away: return a str by which `attach` takes it up, in any process.

        It is not renewed until then, so it has to be attached within its ttl. The str is JSON, for
        a task's arguments; who has it can release the lock.
        """
        self.check()
        hold = self._hold
        if hold.count > 1 or hold.granted.bound is not None:
            why = "taken more than once" if hold.count > 1 else "part of an open transaction"
            raise LockNotHeldError(f"Not detached: it is {why}", name=self.name, alias=self.alias)
        if not hold.move(State.ACTIVE, to=State.DETACHED):
            self._not_held()
        self._done = True
        claim = hold.claim
        token = hold.granted.fencing_token
        return json.dumps([1, self.alias, claim.name, claim.owner, claim.ttl, token, claim.note])

    @classmethod
    def attach(cls, handle: str) -> Self:
        """Take up a detached lease, renewing it at once; the calling thread is the holder.

        Raises LeaseLostError when it ran out meanwhile, InvalidLockError when ``handle`` did not
        come from `detach`.
        """
        return flow.run(cls._attach(handle))

    @classmethod
    async def aattach(cls, handle: str) -> Self:
        """Attach as `attach`."""
        return await flow.arun(cls._attach(handle))

    @classmethod
    def _attach(cls, handle: str) -> Flow[Self]:
        try:
            version, alias, name, owner, ttl, token, note = json.loads(handle)
            if version != 1 or not isinstance(token, int):
                raise ValueError("unknown version")
            backend = locks[alias]
            claim = Claim(name, backend.key(name), owner, check_ttl(ttl), note)
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidLockError("This is no handle that Lease.detach() gave") from error
        now = backend.clock()
        conf = backend.conf
        hold = Hold(
            backend,
            claim,
            Granted(token, now + ttl),
            acquired=now,
            renewing=conf.renew,
            max_hold=conf.max_hold,
        )
        lease = cls(hold)
        if not (yield from renew_hold(hold, None)):
            lease._was_lost()
        watchdog.watch(hold)
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

    def _was_lost(self) -> NoReturn:
        raise LeaseLostError(
            f"The lease is lost: {self._hold.reason}. What was done since may have been done by "
            "another holder too: undo it, or guard the writes by the fencing token",
            name=self.name,
            alias=self.alias,
        )

    def __repr__(self) -> str:
        state = "released" if self._done else self._hold.state.value
        return f"<Lease {self.name!r:.140} alias={self.alias!r} {state}>"


def renew_hold(hold: Hold, ttl: float | None) -> Flow[bool]:
    """Renew in the store, with a new length if ``ttl`` is given; False notes the loss."""
    before = hold.claim
    claim = before
    if ttl is not None:
        claim = Claim(before.name, before.key, before.owner, ttl, before.note)
    # Set first: a renewal of the old length by the watchdog, under way now, is then recognised.
    hold.claim = claim
    crossed = hold.in_flight
    sent = hold.backend.clock()
    try:
        ours = yield from flow.insist(hold.backend, "renew", claim, delays=_retries())
    except BaseException:
        hold.claim = before
        # It may have reached the store: rely on the shorter of the two from now on.
        hold.deadline = min(hold.deadline, sent + claim.ttl - drift(claim.ttl))
        raise
    if not ours:
        hold.lose("the store says that it is not ours any more: it expired or was forced")
        return False
    shortest = min(claim.ttl, before.ttl) if crossed or hold.in_flight else claim.ttl
    hold.deadline = sent + shortest - drift(shortest)
    if claim is not before:
        watchdog.watch(hold)
    facts = {"name": claim.name, "fencing_token": hold.granted.fencing_token}
    left = hold.deadline - hold.backend.clock()
    yield Tell(lock_renewed, hold.backend.alias, {**facts, "deadline_in": left})
    return True


def free(hold: Hold) -> Flow[None]:
    """Release in the store. The hold leaves the watch first, so that no renewal follows."""
    lost = hold.state is State.LOST
    if not hold.move(State.ACTIVE, to=State.RELEASING) and not lost:
        raise LockNotHeldError(
            "The lease is being released already", name=hold.claim.name, alias=hold.backend.alias
        )
    if not lost:
        hold.renewing = False
        try:
            lost = not (
                yield from flow.insist(hold.backend, "release", hold.claim, delays=_retries())
            )
        except LockBackendError:
            hold.move(State.RELEASING, to=State.ACTIVE)
            watchdog.watch(hold)
            raise
        except BaseException:
            # Cancelled or interrupted: unknown whether it is done. Doing it again does no harm.
            hold.move(State.RELEASING, to=State.RELEASED)
            abandon(hold.backend, hold.claim)
            raise
        hold.move(State.RELEASING, to=State.LOST if lost else State.RELEASED)
        hold.reason = "it expired or was forced" if lost else ""
    if lost:
        Lease(hold)._was_lost()
    held_for = hold.backend.clock() - hold.acquired
    logger.debug("Released lock %.200r of alias %r", hold.claim.name, hold.backend.alias)
    facts = {"name": hold.claim.name, "fencing_token": hold.granted.fencing_token}
    yield Tell(lock_released, hold.backend.alias, {**facts, "held_for": held_for})


def keep_until_ended(hold: Hold, blocks: list[Block]) -> None:
    """Release ``hold`` when the transactions have ended, by commit or by rollback."""

    def here() -> None:
        hold.deferred = None
        if hold.count == 0 and not hold.lapse():
            try:
                flow.run(free(hold))
            except LockBackendError as error:
                logger.error("After the transaction: %s", error)
                abandon(hold.backend, hold.claim)
            except LockNotHeldError as error:
                logger.error("The transaction ended without its lock: %s", error)

    def elsewhere() -> None:
        # On any thread, perhaps inside a finalizer: hand it to the worker.
        if hold.granted.bound is None:
            worker_of(hold.backend).submit(here)
        elif hold.count == 0:
            hold.lapse()
            hold.deferred = None

    hold.deferred = Ending(blocks, here, elsewhere)


def _retries() -> Any:
    return (delay for delay, _ in zip(delays(0.01, 0.15), range(RETRIES), strict=False))
