"""One grant of a lock in this process: its state, and what is done with it in the store.

Each transition is made under the mutex of the hold; the page on the architecture draws them.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..backends.base import BaseLockBackend
from ..exceptions import LeaseLostError, LockBackendError, LockNotHeldError
from ..signals import Tell, heard, listeners, lock_failed, lock_released
from ..transactions import Block, Ending, any_open, may_be_elsewhere
from . import flow, fork
from .flow import Attempt, Flow, Granted, drift
from .registry import Me, enter, leave, mark, party
from .threads import Mutex
from .values import Claim, Grant, HolderInfo
from .watchdog import abandon, watchdog, worker_of
from .worker import callbacks

if TYPE_CHECKING:
    from django.dispatch import Signal

__all__ = ["Hold", "State"]

logger = logging.getLogger("django_distlock")

# Seconds that a request without an answer may still take to the store: its connection is closed,
# and what waits in a server has limits.
UNANSWERED = 60.0

# Seconds; a shorter ttl could run out on the way to the store.
LEAST_KEPT = 0.5


# The flows of tasks that have acquired by `aacquire()`: whose the leases are that such a task
# returns is told when its flow goes from here.
acquirers: set[int] = set()


class State(enum.Enum):
    """The life of a hold. It only goes forward, but for RELEASING when the store failed."""

    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    DETACHED = "detached"
    LOST = "lost"


class Hold:
    """One grant, shared by the leases of all nested acquisitions of it.

    The registry and the watchdog refer to it weakly: when no Lease refers to it any more it is not
    renewed, and ends with its ttl.
    """

    __slots__ = (
        "__weakref__",
        "acquired",
        "backend",
        "bound",
        "chain",
        "claim",
        "count",
        "deadline",
        "deferred",
        "entry",
        "fencing_token",
        "flow",
        "in_flight",
        "index",
        "label",
        "marks",
        "max_hold",
        "min_hold",
        "mutex",
        "on_lost",
        "orphaned",
        "party",
        "place",
        "reason",
        "renewing",
        "returned",
        "slot",
        "state",
        "unanswered",
        "unsure",
    )

    def __init__(
        self,
        backend: BaseLockBackend,
        claim: Claim,
        granted: Grant | Granted,
        *,
        deadline: float,
        acquired: float,
        renewing: bool,
        max_hold: float | None = None,
        min_hold: float = 0.0,
        label: str | None = None,
        me: Me | None = None,
    ) -> None:
        self.backend = backend
        self.place = backend.place()
        self.claim = claim
        self.fencing_token = granted.fencing_token
        self.bound = granted.bound
        self.slot = granted.slot
        self.deadline = deadline
        self.acquired = acquired
        self.renewing = renewing
        self.max_hold = max_hold
        self.min_hold = min_hold
        self.label = label  # what metrics call the lock, if anything
        self.count = 1
        self.deferred: object | None = None  # what keeps it until a transaction has ended
        self.in_flight = False  # a renewal by the watchdog is under way
        self.unanswered = (math.inf, 0.0)  # the ttl of a request, and until when it may arrive
        self.unsure = False  # a release was sent and not answered: it may be done
        self.entry: tuple[dict[int, Any], int] | None = None  # where the watchdog has it
        self.state = State.ACTIVE
        self.reason = ""
        self.on_lost: list[Callable[[Hold], None]] = []
        self.mutex = Mutex()  # a finalizer may note a loss on a thread that is inside
        self.adopt(me)

    def adopt(self, me: Me | None = None) -> None:
        """Make the calling thread or task the holder."""
        self.orphaned = False  # whether the watchdog has seen that its holder ended
        self.returned = False  # whether its task ends by returning the lease to its awaiter
        who, self.flow, self.chain = me if me is not None else party()
        self.party = weakref.ref(who)
        self.marks: list[int] = []
        if not isinstance(who, asyncio.Future):
            mark(self)
        index = self.index = (id(self.backend), self.claim.key, id(who), self.flow)
        enter(index, self)

    def is_active(self) -> bool:
        """Return whether it is neither over nor being released."""
        return self.state is State.ACTIVE

    def is_of(self, backend: BaseLockBackend, key: str) -> bool:
        """Return whether it is one of the lock ``key`` of a backend."""
        return self.backend is backend and self.claim.key == key

    def holder_lives(self) -> bool:
        """Return whether the thread or task that holds it can still end it.

        A lease that a task has returned is held by the task's awaiter, as long as the Lease
        object lives: a hold is referred to weakly by all that asks here.
        """
        return self.returned or not self.party_ended()

    def party_ended(self) -> bool:
        """Return whether the thread or task that acquired it, or adopted it last, has ended."""
        who = self.party()
        if who is None:
            return True
        # Not by Thread: what gevent calls one is none of Python's.
        if not isinstance(who, asyncio.Future):
            return not who.is_alive()
        return who.done() and self.flow not in acquirers

    def move(self, before: State, to: State, reason: str = "") -> bool:
        """Go from the state ``before`` to ``to``; False if it is in another one."""
        with self.mutex:
            if self.state is not before:
                return False
            if to is not State.RELEASING:
                self._leave_registers()  # first: it is done again if it is interrupted
            self.reason = reason
            self.state = to
        return True

    def _leave_registers(self) -> None:
        """Be found no more, neither by the holder nor by the watchdog."""
        leave(self.index, self)
        self.unwatch()

    def begin_release(self) -> bool:
        """Go from ACTIVE to RELEASING; False where the release ends a nested acquisition only.

        And where a transaction keeps the hold, or it is over.
        """
        with self.mutex:
            if self.state is not State.ACTIVE or self.count != 1:
                return False
            if self.deferred is not None or self.bound is not None:
                return False
            if self.min_hold and self.kept_for():
                return False
            self.state = State.RELEASING
        return True

    def unwatch(self) -> None:
        """Have the watchdog not check it at that time."""
        entry, self.entry = self.entry, None
        if entry is not None:
            entry[0].pop(entry[1], None)

    def leave(self, before: State, to: State, reason: str) -> bool:
        """Go to a last state without a release in the store, and send the signal."""
        if not self.move(before, to):
            return False
        if heard(lock_released):
            # Perhaps inside a finalizer, where a listener could wait for a mutex of its own.
            outcome = "detached" if to is State.DETACHED else "abandoned"
            self.tell_later(lock_released, **self._facts_of_end(outcome, reason))
        return True

    def is_kept_by_another(self) -> bool:
        """Take one acquisition off; return whether another or a transaction keeps the lock."""
        with self.mutex:
            if self.deferred is not None:
                self.count = max(0, self.count - 1)
                return True
            if self.count > 1:
                self.count -= 1
                if len(self.marks) > 1:
                    self.marks.pop()
                return True
            return False

    def held_for(self) -> float:
        """Return the seconds since the grant."""
        return self.backend.clock() - self.acquired

    def kept_for(self) -> float:
        """Return the seconds for which min_hold has a release of now leave the lock taken."""
        left = self.min_hold - self.held_for()
        return max(left, LEAST_KEPT) if left > 0 else 0.0

    def give_up(self) -> None:
        """Release in the background, as no caller will; within its min_hold leave it to its ttl."""
        if not self.kept_for():
            abandon(self.backend, self.claim, self.place)

    def _facts_of_end(self, outcome: str, reason: str = "") -> dict[str, Any]:
        return {"outcome": outcome, "reason": reason, "held_for": self.held_for()}

    def tell(self, signal: Signal | None, *, ends: bool = True, **facts: Any) -> Tell:
        """Return the step that sends a signal; with what ``ends`` listeners are given the hold."""
        token = self.fencing_token if self.backend.supports_fencing else None
        given = {"name": self.claim.name, "fencing_token": token, **facts}
        return Tell(signal, self.backend.alias, given, self.label, self if ends else None)

    def tell_later(self, signal: Signal | None, *, ends: bool = True, **facts: Any) -> None:
        """Send a signal on a thread of its own."""
        what = f"Sending a signal of lock {self.claim.name!r:.200}"
        callbacks.submit(self.tell(signal, ends=ends, **facts).do, what)

    def tell_when_lost(self, callback: Callable[[Hold], None]) -> None:
        """Call ``callback(hold)`` at the loss, or at once when it has happened already."""
        with self.mutex:
            if self.state is not State.LOST:
                self.on_lost.append(callback)
                return
        callback(self)

    def lose(self, reason: str, before: State = State.ACTIVE) -> bool:
        """Note the loss of the lease, and call the callbacks and receivers, once."""
        if not self.move(before, State.LOST, reason):
            return False
        name, alias = self.claim.name, self.backend.alias
        logger.warning("Lost lock %.200r of alias %r: %s", name, alias, reason)
        for callback in list(self.on_lost):
            try:
                callback(self)
            except Exception:
                logger.exception("Telling of the loss of lock %.200r failed", name)
        if heard(lock_released):
            self.tell_later(lock_released, **self._facts_of_end("lost", reason))
        return True

    def forget_parent(self) -> None:
        """Give it up in a forked child: it is the parent's to release."""
        self.mutex = Mutex()
        self.state = State.LOST
        self.reason = "it belongs to the parent process of this fork, which still holds it"

    def lost_error(self) -> LeaseLostError:
        """Return the error that tells the holder of the loss, and what to do."""
        return LeaseLostError(
            f"The lease is lost: {self.reason}. What was done since may have been done by "
            "another holder too: undo it, or guard the writes by the fencing token",
            name=self.claim.name,
            alias=self.backend.alias,
        )

    def is_lost(self) -> bool:
        """Lose the lease if its time is up or its transaction undone; return whether it is lost."""
        bound = self.bound
        if bound is not None and bound.undone():
            self.lose("the transaction that it was part of was rolled back")
        else:
            now = self.backend.clock()
            if now >= self.deadline:
                self.lose("its ttl ran out without a renewal")
            elif (sure := self.backend.sure_until(self.claim)) is not None and now >= sure:
                self.lose("its session with the store ended, or was not heard of for too long")
        return self.state is State.LOST

    def note_unanswered(self, ttl: float, sent: float) -> None:
        """Note that a request of ``ttl`` seconds, sent then, may still reach the store."""
        self.unanswered = self.relied_on(ttl, sent), sent + UNANSWERED

    def relied_on(self, ttl: float, sent: float) -> float:
        """Return for how long a renewal of ``ttl`` seconds, sent then, can be relied on."""
        shorter, until = self.unanswered
        return min(ttl, shorter) if sent < until else ttl

    def left(self) -> float:
        """Return the seconds for which the holder may still rely on the lease."""
        sure = self.backend.sure_until(self.claim, foreseen=True)
        end = self.deadline if sure is None else min(self.deadline, sure)
        return max(0.0, end - self.backend.clock())

    # -- in the store ------------------------------------------------------------------------------

    def renew(self, ttl: float | None) -> Flow[bool]:
        """Renew in the store, with a new length if ``ttl`` is given; False notes the loss."""
        claim = self.claim
        if ttl is not None and not claim.in_transaction:
            claim = claim._replace(ttl=max(ttl, self.kept_for()))
        return (yield from self._renew(claim))

    def downgrade(self) -> Flow[bool]:
        """Share in the store what was held alone, and renew it; False notes the loss."""
        note = replace(HolderInfo.loads(self.claim.note), shared=True).dumps()
        return (yield from self._renew(self.claim._replace(shared=True, note=note)))

    def _renew(self, claim: Claim) -> Flow[bool]:
        """Renew by a ``claim`` that may be another one than before."""
        fork.check()
        before = self.claim
        # Set first: a renewal of the old length by the watchdog, under way now, is then recognised.
        self.claim = claim
        crossed = self.in_flight
        sent = self.backend.clock()
        try:
            ours = yield from flow.insist(self.backend, "renew", claim)
        except BaseException as error:
            self.claim = before
            if claim.shared != before.shared:
                # Whether or not it came to be shared, a shared claim renews and releases it.
                self.claim = before._replace(shared=True, note=claim.note)
            # It may have reached the store, or reach it later, after longer renewals.
            self.note_unanswered(claim.ttl, sent)
            self.deadline = min(self.deadline, sent + claim.ttl - drift(claim.ttl))
            watchdog.watch(self)
            if isinstance(error, LockBackendError) and heard(lock_failed):
                yield self._failed("renew", error)
            raise
        if not ours:
            self.lose("the store says that it is not ours any more: it expired or was forced")
            return False
        shortest = self.relied_on(claim.ttl, sent)
        if crossed or self.in_flight:
            shortest = min(shortest, before.ttl)
        self.deadline = sent + shortest - drift(shortest)
        if claim is not before or shortest < claim.ttl:
            watchdog.watch(self)
        if listeners:
            left = self.deadline - self.backend.clock()
            yield self.tell(None, ends=False, deadline_in=left)
        return True

    def release_now(self) -> Attempt | bool:
        """Release by one plain call, where that is all that is to be done.

        True: it is released. False: nothing was begun. Else it is RELEASING, and a flow has to go
        on from what the call has come to: see `finish_release`.
        """
        fork.check()
        if (self.backend.conf.in_transaction == "hold" and any_open()) or not self.begin_release():
            return False
        try:
            ours = self.backend.call("release", self.claim, name=self.claim.name)
        except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
            return Attempt(0.0, error=error)
        return self._answered(ours)

    async def arelease_now(self) -> Attempt | bool:
        """Release as `release_now`, on the event loop."""
        fork.check()
        judged = self.backend.conf.in_transaction == "hold"
        if (judged and (may_be_elsewhere() or any_open())) or not self.begin_release():
            return False
        try:
            ours = await flow.ask(self.backend, "release", self.claim, name=self.claim.name)
        except GeneratorExit:
            raise  # no event loop drives us any more
        except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
            return Attempt(0.0, error=error)
        return self._answered(ours)

    def _answered(self, ours: bool) -> Attempt | bool:
        if not ours or heard(lock_released):
            return Attempt(0.0, ours)
        self._ended()
        return True

    def _ended(self) -> None:
        self.move(State.RELEASING, State.RELEASED)
        logger.debug("Released lock %.200r of alias %r", self.claim.name, self.backend.alias)

    def release(self) -> Flow[None]:
        """Release in the store, unless a nested acquisition or a transaction keeps the hold.

        It leaves the watch first, so that no renewal follows.
        """
        fork.check()
        with self.mutex:  # judged in one step: it may be acquired once more by its holder meanwhile
            if self.state is State.ACTIVE and self.is_kept_by_another():
                return
            moved = self.move(State.ACTIVE, State.RELEASING)
        if moved:
            yield from self.finish_release()
            return
        if self.state is State.LOST:
            raise self.lost_error()
        raise LockNotHeldError(
            "The lease is being released already", name=self.claim.name, alias=self.backend.alias
        )

    def finish_release(
        self, *, may_be_gone: bool = False, first: Attempt | None = None
    ) -> Flow[None]:
        """Release a hold that is RELEASING; one that ``may_be_gone`` is released if it is gone.

        ``first`` is what came of a call that was made already. Within its min_hold the lock is left
        in the store for the rest of it.
        """
        self.renewing = False
        verb, claim, kept = "release", self.claim, self.kept_for()
        if kept:
            verb, claim = "renew", self.claim._replace(ttl=kept)
        try:
            ours = yield from flow.insist(self.backend, verb, claim, first=first)
        except LockBackendError as error:
            self.unsure = True
            self.move(State.RELEASING, State.ACTIVE)
            watchdog.watch(self)
            if heard(lock_failed):
                yield self._failed("release", error)
            raise
        except BaseException:
            # Cancelled or interrupted: unknown whether it is done. Doing it again does no harm.
            self.leave(State.RELEASING, State.RELEASED, "its release was interrupted")
            self.give_up()
            raise
        if not ours and not may_be_gone and not self.unsure:
            if self.lose("it expired or was forced", before=State.RELEASING):
                raise self.lost_error()
            return  # given up meanwhile: the other one of two releases found it
        self._ended()
        if heard(lock_released):
            reason = "it stays taken until its min_hold is over" if kept else ""
            yield self.tell(lock_released, **self._facts_of_end("released", reason))

    def _failed(self, action: str, error: LockBackendError) -> Tell:
        """Return the step that tells of a store that failed at ``action``."""
        # Not the error itself: it refers to the frame that sends it, see flow.run.
        return self.tell(lock_failed, ends=False, action=action, reason=str(error), waited=None)

    def keep_until_ended(self, blocks: list[Block]) -> None:
        """Release it when the transactions have ended, by commit or by rollback."""
        bound = self.bound

        def here() -> None:
            with self.mutex:  # else it could be taken again in between: see Lock._again
                self.deferred = None
                if self.count > 0 or not self.move(State.ACTIVE, State.RELEASING):
                    return
            moved = self.backend.place() != self.place
            if moved or (bound is not None and bound.in_testcase and bound.undone()):
                self.leave(State.RELEASING, State.RELEASED, "the test that it was part of is over")
                return
            try:
                flow.run(self.finish_release(may_be_gone=bound is not None))
            except LockBackendError as error:
                self.leave(State.ACTIVE, State.RELEASED, "the store failed at its release")
                logger.error("After the transaction: %s", error)  # noqa: TRY400 - it says all
                self.give_up()
            except LockNotHeldError as error:
                logger.error("The transaction ended without its lock: %s", error)  # noqa: TRY400 - the same

        def elsewhere() -> None:
            # On any thread, perhaps inside a finalizer: hand it to the worker.
            worker_of(self.backend).submit(here)

        # It is the transaction's now, so the thread of the transaction holds it: a task that
        # took it for synchronous code above it may end long before.
        self.adopt()
        key = (id(self.backend), self.claim.key)
        self.deferred = Ending(blocks, here, elsewhere, subject=self, key=key)
