"""`Lock`: a name and options, used as a block, as a decorator, or by hand."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeGuard

from . import flow, held, transactions
from .decorators import Contention, Decorates, Name, check_contention, fill
from .durations import UNSET, Duration, Unset, Wait, check_ttl, check_wait
from .exceptions import (
    AlreadyHeldError,
    InvalidLockError,
    LockBackendError,
    LockInTransactionError,
    LockNotAcquiredError,
    LockTimeoutError,
)
from .flow import Flow
from .guard import Guard
from .handler import locks
from .held import Hold, State
from .holder import this_note
from .lease import Lease
from .names import check_label, check_name, label_of
from .signals import Tell, heard, lock_acquired, lock_contended, lock_failed
from .transactions import Ask, is_pending, open_transactions, sweep
from .upkeep import free, renew_hold
from .values import Claim, LockInfo, Note, Refusal
from .watchdog import abandon, watchdog

if TYPE_CHECKING:
    from django.dispatch import Signal

    from .backends.base import BaseLockBackend

__all__ = ["Lock", "LockOptions", "MemberOptions", "lock"]

logger = logging.getLogger("django_distlock")


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Lock(Guard[Lease], Decorates):
    """A lock's name and options: a plain value, picklable, that holds no connection.

    One Lock may be shared by threads, tasks and decorators. See `lock` for the fields.
    """

    name: Name
    using: str = "default"
    ttl: Duration | Unset = UNSET
    wait: Wait = UNSET
    renew: bool | Unset = UNSET
    reentrant: bool | Unset = UNSET
    max_hold: Wait = UNSET
    on_contention: Contention = "raise"
    # Compared, but not hashed: they may be lists or dicts.
    default: Any = field(default=None, hash=False)
    cancel_on_lost: bool = False
    metadata: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    # It says nothing of what the lock is, so it tells no two apart.
    label: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        name = None if callable(self.name) else check_name(self.name, self.using)
        if self.ttl is not UNSET:
            check_ttl(self.ttl, name=name, alias=self.using)
        if self.wait is not UNSET:
            check_wait(self.wait, name=name, alias=self.using)
        if self.max_hold is not UNSET and self.max_hold is not None:
            check_ttl(self.max_hold, what="max_hold", name=name, alias=self.using)
        check_contention(self.on_contention, name, self.using)
        check_label(self.label, name, self.using)

    # -- what Guard and Decorates ask --------------------------------------------------------------

    def _leases(self, got: Lease) -> Sequence[Lease]:
        return (got,)

    def _label(self) -> tuple[str | None, str | None]:
        return (None if callable(self.name) else self.name), self.using

    def _names(self) -> list[Name]:
        return [self.name]

    def _bound_to(self, arguments: Mapping[str, Any]) -> Lock:
        return self._filled(fill(self.name, arguments, self.using))

    def _filled(self, name: str, **others: Any) -> Lock:
        """Return the lock ``name``, which metrics call by our template."""
        label = self.label or label_of(self.name)
        # Whoever fills the name heeds these two.
        return replace(self, name=name, label=label, on_contention="raise", default=None, **others)

    def _obtain(self, wait: Wait, owner: str | None = None) -> Flow[Lease]:
        self._refuse_contention()
        patience = self._patience(wait)
        return self._obtain_in(patience, patience, owner)

    def _patience(self, wait: Wait) -> float | None:
        """Return the wait of the call, or else the lock's, or else that of the settings."""
        given = self.wait if wait is UNSET else wait
        if given is UNSET:
            return locks[self.using].conf.wait
        return check_wait(given, name=self._plain_name(), alias=self.using)

    def _obtain_in(
        self,
        left: float | None,
        patience: float | None,
        owner: str | None = None,
    ) -> Flow[Lease]:
        """Return a flow that acquires within ``left`` seconds of a wait of ``patience`` seconds.

        As a new owner, or as the ``owner`` that may hold it already and was handed to us.
        """
        name = self._plain_name()
        backend = locks[self.using]
        if (most := backend.longest_wait) is not None:
            left = most if left is None else min(left, most)
        ttl = backend.conf.ttl  # judged with the settings
        if self.ttl is not UNSET:
            ttl = check_ttl(self.ttl, name=name, alias=self.using, longest=backend.longest_ttl)
        max_hold = self._max_hold(backend)
        if max_hold is not None and max_hold < ttl:
            raise InvalidLockError(
                f"max_hold must not be shorter than the ttl: got {max_hold:g} s and {ttl:g} s",
                name=name,
                alias=self.using,
            )
        note = self._note(name, backend)
        key = backend.key(name)
        kept = (yield Ask(lambda: transactions.kept((id(backend), key)))) if is_pending() else None
        me = held.party()
        mine = held.find(backend, key, me)
        if mine is None and _is_on(kept, backend, key):
            mine = kept  # by the transaction, whichever of its tasks or threads is asking
        if mine is not None and (again := (yield from self._again(mine))) is not None:
            return again
        if backend.conf.in_transaction == "error":
            yield from self._refuse_transaction(name)
        claim = Claim(name, key, owner or secrets.token_bytes(16).hex(), ttl, note)
        place = backend.place()
        started = backend.clock()
        try:
            answer = yield from flow.acquire(
                backend,
                claim,
                until=None if left is None else started + left,
                clock=backend.clock,
                delays=backend.backoff,
                abandon=lambda claim: abandon(backend, claim, place),
            )
        except LockBackendError as error:
            if heard(lock_failed):
                # Not the error itself: it refers to this frame, see flow.run.
                waited, reason = backend.clock() - started, str(error)
                yield self._told(lock_failed, name, action="acquire", reason=reason, waited=waited)
            raise
        if isinstance(answer, Refusal):
            waited = backend.clock() - started
            if heard(lock_contended):
                after = answer.remaining
                yield self._told(lock_contended, name, waited=waited, retry_after=after)
            raise self._refused(backend, claim, answer, patience)
        hold = None
        try:
            waited = backend.clock() - started
            hold = Hold(
                backend,
                claim,
                answer,
                acquired=started + waited,
                renewing=backend.conf.renew if self.renew is UNSET else self.renew,
                max_hold=max_hold,
                label=self.label,
                me=me,
            )
            lease = Lease(hold)
            watchdog.watch(hold)
        except BaseException:
            if hold is not None:
                hold.move(State.ACTIVE, State.RELEASED)
            abandon(backend, claim, place)  # interrupted, and granted already
            raise
        try:
            logger.debug("Acquired lock %.200r of alias %r", name, self.using)
            if heard(lock_acquired):
                yield self._told(lock_acquired, name, hold, lease=lease, waited=waited)
        except GeneratorExit:
            lease._drop()
            raise
        except BaseException:
            yield from free(hold)
            raise
        return lease

    def _told(self, signal: Signal, name: str, hold: Hold | None = None, **facts: Any) -> Tell:
        return Tell(signal, self.using, {"name": name, **facts}, self.label, hold)

    def _again(self, mine: Hold) -> Flow[Lease | None]:
        """Nest in our own hold, or refuse to; None when the store says it is no longer ours."""
        # The store is asked, for a rolled-back test, a flush or a forced release may have taken
        # the lock away without this process having noticed.
        if mine.lapse() or not (yield from renew_hold(mine, None)):
            return None
        reentrant = mine.backend.conf.reentrant if self.reentrant is UNSET else self.reentrant
        with mine.mutex:  # it may be released meanwhile, after the end of a transaction
            if mine.state is not State.ACTIVE or (mine.count == 0 and mine.deferred is None):
                return None
            if reentrant or mine.deferred is not None:
                mine.count += 1
                mine.mark()
                return Lease(mine)
        raise AlreadyHeldError(
            "This thread or task holds the lock already and would wait for itself. Pass the lease "
            "to where it is needed, or use reentrant=True",
            name=mine.claim.name,
            alias=self.using,
        )

    def _refuse_transaction(self, name: str) -> Flow[None]:
        """Raise LockInTransactionError where one is open."""
        blocks, by_hand = yield Ask(open_transactions)
        if blocks or by_hand:
            raise LockInTransactionError(
                "The lock is taken inside an open transaction and would be free before the "
                "commit. Use lock(...).atomic(), which commits first, or IN_TRANSACTION='hold'",
                name=name,
                alias=self.using,
            )

    def _refused(
        self, backend: BaseLockBackend, claim: Claim, refusal: Refusal, patience: float | None
    ) -> LockNotAcquiredError:
        holder = Note.loads(refusal.note).holder if refusal.note else None
        message = f"Held by {holder}" if holder else "Held"
        if refusal.remaining is not None:
            message += f", for another {max(0.0, refusal.remaining):.1f} s unless renewed"
        if relative := held.of_same_flow(backend, claim.key):
            message += (
                f". It is {relative.party()!r} of the same chain of calls, which may be waiting "
                "for you: pass the lease instead of acquiring again"
            )
        kind = LockNotAcquiredError if patience == 0 else LockTimeoutError
        if backend.longest_wait is not None:
            message += f". Here nobody waits for longer than {backend.longest_wait:g} s"
        elif patience:
            message += f". Waited {patience:g} s: raise wait, or hold it for shorter"
        return kind(
            message,
            name=claim.name,
            alias=self.using,
            retry_after=refusal.remaining,
            holder=holder,
        )

    def _plain_name(self) -> str:
        if callable(self.name):
            raise InvalidLockError(
                "A callable name is for decorators, where there are arguments to call it with",
                alias=self.using,
            )
        return self.name

    def _max_hold(self, backend: BaseLockBackend) -> float | None:
        if self.max_hold is UNSET:
            return backend.conf.max_hold
        return None if self.max_hold is None else check_ttl(self.max_hold, what="max_hold")

    def _note(self, name: str, backend: BaseLockBackend) -> str:
        try:
            return this_note(self.metadata, show_caller=backend.conf.show_caller)
        except (TypeError, ValueError) as error:
            raise InvalidLockError(
                f"metadata is a dict that JSON can hold: {error}", name=name, alias=self.using
            ) from error

    # -- looking, and breaking ---------------------------------------------------------------------

    def locked(self) -> bool:
        """Tell whether anybody holds the lock now. It may have changed when you read this."""
        return self.info() is not None

    async def alocked(self) -> bool:
        """Tell as `locked`."""
        return await self.ainfo() is not None

    def info(self) -> LockInfo | None:
        """Return the holder, the token and the times of the current grant; None when it is free.

        It may have changed when you read this. Raises LockBackendError when the store fails.
        """
        return flow.run(self._info())

    async def ainfo(self) -> LockInfo | None:
        """Return as `info`."""
        return await flow.arun(self._info())

    def _info(self) -> Flow[LockInfo | None]:
        name = self._plain_name()
        if is_pending():
            yield Ask(sweep)
        found: LockInfo | None = yield flow.Call(locks[self.using], "inspect", (name,), name)
        return found

    def force_release(self, *, fencing_token: int | None = None) -> LockInfo:
        """Free the lock whoever holds it, and return who did.

        With ``fencing_token`` only that grant is broken, never a newer one; without it, the one
        that is seen first. The holder learns of the loss by its next renewal. Raises
        LockNotHeldError when the lock is free, or held by another grant.
        """
        return locks[self.using].force_release(self._plain_name(), fencing_token=fencing_token)

    async def aforce_release(self, *, fencing_token: int | None = None) -> LockInfo:
        """Free as `force_release`."""
        name = self._plain_name()
        return await locks[self.using].aforce_release(name, fencing_token=fencing_token)


def _is_on(hold: object, backend: BaseLockBackend, key: str) -> TypeGuard[Hold]:
    return isinstance(hold, Hold) and hold.backend is backend and hold.claim.key == key


class MemberOptions(TypedDict, total=False):
    """The options of `lock` that concern one of several locks."""

    ttl: Duration | Unset
    renew: bool | Unset
    reentrant: bool | Unset
    max_hold: Wait
    metadata: Mapping[str, Any] | None
    label: str | None


class LockOptions(MemberOptions, total=False):
    """The options of `lock`."""

    using: str
    wait: Wait
    on_contention: Contention
    default: Any
    cancel_on_lost: bool


def lock(
    name: Name,
    *,
    using: str = "default",
    ttl: Duration | Unset = UNSET,
    wait: Wait = UNSET,
    renew: bool | Unset = UNSET,
    reentrant: bool | Unset = UNSET,
    max_hold: Wait = UNSET,
    on_contention: Contention = "raise",
    default: Any = None,
    cancel_on_lost: bool = False,
    metadata: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> Lock:
    """Return a lock, to be used by ``with``, ``async with``, as a decorator, or by ``acquire()``.

    - ``name``: any non-empty str. As a decorator a template over the call's arguments, such as
      ``"invoice:{invoice.pk}"``, or a callable that is given the arguments and returns the name.
    - ``using``: the alias in DISTLOCKS.
    - ``ttl``: seconds (from 0.01) or timedelta that the lock outlives a vanished holder.
    - ``wait``: seconds or timedelta to wait for it; 0 tries once, None waits for ever.
    - ``renew``: whether the watchdog renews it while it is held.
    - ``reentrant``: whether the same thread or task may take it again; the last release frees it.
    - ``max_hold``: seconds or timedelta after which it is not renewed any more; None: no limit.
    - ``on_contention``, ``default``: what a decorated function does when the lock is not obtained:
      ``"raise"``, ``"skip"`` (return ``default``), or a callable given the call's arguments whose
      result is returned.
    - ``cancel_on_lost``: cancel the body of ``async with`` when the lease is lost.
    - ``metadata``: a dict that JSON can hold, shown beside the holder.
    - ``label``: what metrics call the lock, such as ``"invoice:{pk}"``; one of a few, so never with
      the id in it. Left out it is the template of a decorator, and nothing for a name given as it
      is.

    What is left out is as the alias's settings say. Raises InvalidLockError when out of range.
    """
    return Lock(
        name=name,
        using=using,
        ttl=ttl,
        wait=wait,
        renew=renew,
        reentrant=reentrant,
        max_hold=max_hold,
        on_contention=on_contention,
        default=default,
        cancel_on_lost=cancel_on_lost,
        metadata=metadata,
        label=label,
    )
