"""What is done with a hold in the store after its grant: renewing and freeing it."""

from __future__ import annotations

import logging

from ..exceptions import LockBackendError, LockNotHeldError
from ..signals import Tell, heard, lock_failed, lock_released, lock_renewed
from ..transactions import Block, Ending, any_open, may_be_elsewhere
from . import flow
from .flow import Attempt, Flow, drift
from .held import Hold, State
from .values import Claim
from .watchdog import abandon, watchdog, worker_of

__all__ = [
    "aask_release",
    "ask_release",
    "failed",
    "free",
    "keep_until_ended",
    "renew_hold",
    "send_release",
]

logger = logging.getLogger("django_distlock")


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
        ours = yield from flow.insist(hold.backend, "renew", claim)
    except BaseException as error:
        hold.claim = before
        # It may have reached the store: rely on the shorter of the two from now on.
        hold.deadline = min(hold.deadline, sent + claim.ttl - drift(claim.ttl))
        watchdog.watch(hold)
        if isinstance(error, LockBackendError) and heard(lock_failed):
            yield failed(hold, "renew", error)
        raise
    if not ours:
        hold.lose("the store says that it is not ours any more: it expired or was forced")
        return False
    shortest = min(claim.ttl, before.ttl) if crossed or hold.in_flight else claim.ttl
    hold.deadline = sent + shortest - drift(shortest)
    if claim is not before or shortest < claim.ttl:
        watchdog.watch(hold)
    if heard(lock_renewed):
        left = hold.deadline - hold.backend.clock()
        yield hold.tell(lock_renewed, ends=False, deadline_in=left)
    return True


def ask_release(hold: Hold) -> Attempt | bool:
    """Release by one plain call, where that is all that is to be done.

    True: it is released. False: nothing was begun. Else it is RELEASING, and a flow has to go on
    from what the call has come to: see `send_release`.
    """
    if (hold.backend.conf.in_transaction == "hold" and any_open()) or not hold.begin_release():
        return False
    try:
        ours = hold.backend.call("release", hold.claim, name=hold.claim.name)
    except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
        return Attempt(0.0, error=error)
    return _answered(hold, ours)


async def aask_release(hold: Hold) -> Attempt | bool:
    """Release as `ask_release`, on the event loop."""
    judged = hold.backend.conf.in_transaction == "hold"
    if (judged and (may_be_elsewhere() or any_open())) or not hold.begin_release():
        return False
    try:
        ours = await flow.ask(hold.backend, "release", hold.claim, name=hold.claim.name)
    except GeneratorExit:
        raise  # no event loop drives us any more
    except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
        return Attempt(0.0, error=error)
    return _answered(hold, ours)


def _answered(hold: Hold, ours: bool) -> Attempt | bool:
    if not ours or heard(lock_released):
        return Attempt(0.0, ours)
    _ended(hold)
    return True


def _ended(hold: Hold) -> None:
    hold.move(State.RELEASING, State.RELEASED)
    logger.debug("Released lock %.200r of alias %r", hold.claim.name, hold.backend.alias)


def free(hold: Hold) -> Flow[None]:
    """Release in the store, unless a nested acquisition or a transaction keeps the hold.

    It leaves the watch first, so that no renewal follows.
    """
    with hold.mutex:  # judged in one step: it may be acquired once more by its holder meanwhile
        if hold.state is State.ACTIVE and hold.is_kept_by_another():
            return
        moved = hold.move(State.ACTIVE, State.RELEASING)
    if moved:
        yield from send_release(hold)
        return
    if hold.state is State.LOST:
        raise hold.lost_error()
    raise LockNotHeldError(
        "The lease is being released already", name=hold.claim.name, alias=hold.backend.alias
    )


def send_release(
    hold: Hold, *, may_be_gone: bool = False, first: Attempt | None = None
) -> Flow[None]:
    """Release a hold that is RELEASING; one that ``may_be_gone`` is released if it is gone.

    ``first`` is what came of a call that was made already.
    """
    hold.renewing = False
    try:
        ours = yield from flow.insist(hold.backend, "release", hold.claim, first=first)
    except LockBackendError as error:
        hold.unsure = True
        hold.move(State.RELEASING, State.ACTIVE)
        watchdog.watch(hold)
        if heard(lock_failed):
            yield failed(hold, "release", error)
        raise
    except BaseException:
        # Cancelled or interrupted: unknown whether it is done. Doing it again does no harm.
        hold.leave(State.RELEASING, State.RELEASED, "its release was interrupted")
        abandon(hold.backend, hold.claim, hold.place)
        raise
    if not ours and not may_be_gone and not hold.unsure:
        if hold.lose("it expired or was forced", before=State.RELEASING):
            raise hold.lost_error()
        return  # given up meanwhile: the other one of two releases found it
    _ended(hold)
    if heard(lock_released):
        yield hold.tell(lock_released, held_for=hold.held_for())


def failed(hold: Hold, action: str, error: LockBackendError) -> Tell:
    """Return the step that tells of a store that failed at ``action``."""
    # Not the error itself: it refers to the frame of whoever sends it, see flow.run.
    return hold.tell(lock_failed, ends=False, action=action, reason=str(error), waited=None)


def keep_until_ended(hold: Hold, blocks: list[Block]) -> None:
    """Release ``hold`` when the transactions have ended, by commit or by rollback."""
    bound = hold.bound

    def here() -> None:
        with hold.mutex:  # else it could be taken again in between: see Lock._again
            hold.deferred = None
            if hold.count > 0 or not hold.move(State.ACTIVE, State.RELEASING):
                return
        moved = hold.backend.place() != hold.place
        if moved or (bound is not None and bound.in_testcase and bound.undone()):
            hold.leave(State.RELEASING, State.RELEASED, "the test that it was part of is over")
            return
        try:
            flow.run(send_release(hold, may_be_gone=bound is not None))
        except LockBackendError as error:
            hold.leave(State.ACTIVE, State.RELEASED, "the store failed at its release")
            logger.error("After the transaction: %s", error)  # noqa: TRY400 - it says all
            abandon(hold.backend, hold.claim, hold.place)
        except LockNotHeldError as error:
            logger.error("The transaction ended without its lock: %s", error)  # noqa: TRY400 - the same

    def elsewhere() -> None:
        # On any thread, perhaps inside a finalizer: hand it to the worker.
        worker_of(hold.backend).submit(here)

    # It is the transaction's now, so the thread of the transaction is who holds it: a task that
    # took it for synchronous code above it may end long before.
    hold.adopt()
    key = (id(hold.backend), hold.claim.key)
    hold.deferred = Ending(blocks, here, elsewhere, subject=hold, key=key)
