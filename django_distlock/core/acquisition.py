"""One acquisition of a lock, from its options to the lease.

Most locks are free, and this process does not hold them: one plain call to the store acquires them.
Whatever needs more (a wait, a nested acquisition, an open transaction, receivers of signals) is up
to the flow, which continues from the outcome of that call.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from .. import transactions
from ..exceptions import (
    AlreadyHeldError,
    InvalidLockError,
    LockBackendError,
    LockInTransactionError,
    LockNotAcquiredError,
    LockTimeoutError,
    UnsupportedOperationError,
)
from ..handler import locks
from ..lease import Lease
from ..signals import Tell, heard, lock_acquired, lock_contended, lock_failed
from ..transactions import Ask, is_pending, open_transactions
from . import flow
from .durations import MAX_TTL, UNSET, Duration, Unset, Wait, check_ttl
from .flow import Attempt, Flow, Granted
from .hold import Hold, State
from .holder import this_note
from .names import LONGEST
from .registry import find, mark, of_same_flow, party
from .values import Claim, Grant, HolderInfo, Refusal, encode
from .watchdog import abandon, watchdog

if TYPE_CHECKING:
    from django.dispatch import Signal

    from ..backends.base import BaseLockBackend
    from ..conf import AliasConf
    from ..decorators import Name

__all__ = ["Acquisition", "check_kind"]

logger = logging.getLogger("django_distlock")


class Options(Protocol):
    """What is asked of a `Lock`."""

    @property
    def name(self) -> Name: ...
    @property
    def using(self) -> str: ...
    @property
    def ttl(self) -> Duration | Unset: ...
    @property
    def renew(self) -> bool | Unset: ...
    @property
    def reentrant(self) -> bool | Unset: ...
    @property
    def max_hold(self) -> Wait: ...
    @property
    def min_hold(self) -> Duration | None: ...
    @property
    def shared(self) -> bool: ...
    @property
    def limit(self) -> int | None: ...
    @property
    def metadata(self) -> Mapping[str, Any] | None: ...
    @property
    def label(self) -> str | None: ...
    @property
    def _xact(self) -> bool: ...
    def _plain_name(self) -> str: ...
    def _patience(self, wait: Wait, conf: AliasConf) -> float | None: ...


class Acquisition:
    """One acquisition that may ``wait``; ``left`` is what is left of that, if it has begun.

    As a new owner, or as the ``owner`` that may hold it already and was handed to us.
    """

    __slots__ = (
        "_hold",
        "_lock",
        "_max_hold",
        "_me",
        "_min_hold",
        "_patience",
        "_place",
        "_renewing",
        "backend",
        "claim",
        "left",
        "started",
    )

    def __init__(
        self,
        lock: Options,
        wait: Wait = UNSET,
        *,
        left: float | Unset | None = UNSET,
        owner: str | None = None,
    ) -> None:
        name = lock.name
        if callable(name) or "{" in name:
            name = lock._plain_name()
        self._lock = lock
        self._hold: Hold | None = None  # of the lease, which the caller does not have yet
        self.backend = backend = locks[lock.using]
        self._patience = patience = lock._patience(wait, backend.conf)
        if left is UNSET:
            left = patience
        if (most := backend.longest_wait) is not None:
            left = most if left is None else min(left, most)
        self.left = left
        ttl = backend.conf.ttl  # judged with the settings
        if lock.ttl is not UNSET:
            ttl = check_ttl(lock.ttl, name=name, alias=lock.using, longest=backend.longest_ttl)
        self._min_hold = min_hold = 0.0 if lock.min_hold is None else self._shortest_hold(name)
        ttl = max(ttl, min_hold)  # a crash does not shorten it
        max_hold = backend.conf.max_hold if lock.max_hold is UNSET else self._longest_hold()
        self._max_hold = max_hold
        if max_hold is not None and max_hold < ttl:
            raise InvalidLockError(
                "max_hold must not be shorter than the ttl and min_hold: "
                f"got {max_hold:g} s and {ttl:g} s",
                name=name,
                alias=lock.using,
            )
        self._renewing = backend.conf.renew if lock.renew is UNSET else lock.renew
        owner = owner or secrets.token_bytes(16).hex()
        self._me = party()
        note = self._note(name, ttl)
        if lock._xact:
            ttl = MAX_TTL  # it lasts as long as the transaction
        shared, limit = lock.shared, lock.limit
        if shared or limit is not None:
            check_kind(backend, name, shared=shared, limited=limit is not None)
        waits = patience is None or patience > 0
        key = backend.key(name)
        self.claim = Claim(name, key, owner, ttl, note, lock._xact, shared, limit or 0, waits)

    def _longest_hold(self) -> float | None:
        given = self._lock.max_hold
        return None if given is None else check_ttl(given, what="max_hold")

    def _shortest_hold(self, name: str) -> float:
        lock, backend = self._lock, self.backend
        if lock._xact or not backend.transferable:
            raise UnsupportedOperationError(
                "A lock of this backend ends with its "
                f"{'transaction' if lock._xact else 'connection'}, so min_hold cannot keep it: use "
                "another backend",
                name=name,
                alias=lock.using,
            )
        longest = backend.longest_ttl
        return check_ttl(
            lock.min_hold, what="min_hold", name=name, alias=lock.using, longest=longest
        )

    def _note(self, name: str, ttl: float) -> str:
        lock = self._lock
        try:
            if lock.metadata and (size := len(encode(dict(lock.metadata)))) > LONGEST:
                raise ValueError(f"this would take {size:,}")
            return this_note(
                lock.metadata,
                show_caller=self.backend.conf.show_caller,
                ttl=ttl,
                renewed=self._renewing,
                min_hold=self._min_hold or None,
                shared=lock.shared,
                limit=lock.limit,
            )
        except (TypeError, ValueError) as error:
            raise InvalidLockError(
                f"metadata is a dict that JSON can hold in {LONGEST:,} characters: {error}",
                name=name,
                alias=lock.using,
            ) from error

    # -- by one plain call -------------------------------------------------------------------------

    def run(self) -> Lease:
        """Acquire in this thread. Raises LockNotAcquiredError, or what `Lock.acquire` raises."""
        first = None
        if self.is_plain():
            backend, claim = self.backend, self.claim
            try:
                limit = flow.patience(backend, self.left)
                answer = backend.call("try_acquire", claim, limit, name=claim.name)
                if isinstance(answer, Grant) and (lease := self._at_once(answer)) is not None:
                    return lease
                first = Attempt(self.started, answer)
            except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
                first = Attempt(self.started, error=error)
        try:
            return flow.run(self.flow(first))
        except BaseException:
            self.give_up(first)
            raise

    async def arun(self) -> Lease:
        """Acquire as `run`, on the event loop."""
        first = None
        if asyncio._get_running_loop() is not None and self.is_plain():
            backend, claim = self.backend, self.claim
            try:
                limit = flow.patience(backend, self.left)
                answer = await flow.ask(backend, "try_acquire", claim, limit, name=claim.name)
                if isinstance(answer, Grant) and (lease := self._at_once(answer)) is not None:
                    return lease
                first = Attempt(self.started, answer)
            except GeneratorExit:
                self.abandon()  # no event loop drives us any more
                raise
            except BaseException as error:  # noqa: BLE001 - the flow decides, and raises it again
                first = Attempt(self.started, error=error)
        try:
            return await flow.arun(self.flow(first))
        except BaseException:
            self.give_up(first)
            raise

    def give_up(self, first: Attempt | None) -> None:
        """Have what was granted released in the background, if the flow was not yet told of it."""
        if first is not None and not first.taken:
            first.error = None  # it refers to the frame that has ``first``
            self.abandon()
        else:
            self._forget()

    def abandon(self) -> None:
        """Release in the background what the store may have granted."""
        self._forget()
        abandon(self.backend, self.claim, self._place)

    def _forget(self) -> None:
        """End a lease that no caller was given, or it would be said to be dropped by its holder."""
        if self._hold is not None:
            self._hold.move(State.ACTIVE, State.RELEASED)

    def is_plain(self) -> bool:
        """Return whether the store is asked first, whatever comes of it; and begin to."""
        backend, left = self.backend, self.left
        if (
            is_pending()
            or find(backend, self.claim.key, self._me) is not None
            or (backend.conf.in_transaction == "error" and not self._lock._xact)
            or ((left is None or left > 0) and backend.is_contended(self.claim))
        ):
            return False
        self._place = backend.place()
        self.started = backend.clock()
        return True

    def _at_once(self, answer: Grant) -> Lease | None:
        """Return the lease of a grant, unless a receiver waits for it or it came too late."""
        valid_for = answer.valid_for
        deadline = self.started + valid_for - flow.drift(valid_for)
        if self.backend.clock() >= deadline or heard(lock_acquired):
            return None
        return self._leased(answer, deadline)

    # -- by a flow ---------------------------------------------------------------------------------

    def flow(self, first: Attempt | None = None) -> Flow[Lease]:
        """Return the flow that acquires; ``first`` is what the plain call has come to."""
        backend, claim = self.backend, self.claim
        if first is None:
            mine = find(backend, claim.key, self._me)
            if is_pending():
                kept = yield Ask(lambda: transactions.kept((id(backend), claim.key)))
                # By the transaction, whichever of its tasks or threads is asking.
                if mine is None and isinstance(kept, Hold) and kept.is_of(backend, claim.key):
                    mine = kept
            if mine is not None and (again := (yield from self._again(mine))) is not None:
                return again
            if backend.conf.in_transaction == "error" and not self._lock._xact:
                yield from self._refuse_transaction()
            self._place = backend.place()
            self.started = backend.clock()
        started, left = self.started, self.left
        try:
            answer = yield from flow.acquire(
                backend,
                claim,
                until=None if left is None else started + left,
                clock=backend.clock,
                delays=backend.backoff,
                abandon=lambda claim: abandon(backend, claim, self._place),
                first=first,
            )
        except LockBackendError as error:
            if heard(lock_failed):
                # Not the error itself: it refers to this frame, see flow.run.
                waited, reason = backend.clock() - started, str(error)
                yield self._told(lock_failed, action="acquire", reason=reason, waited=waited)
            raise
        lease = None
        try:  # no call comes before it: each is a place at which Python lets a signal's handler in
            if not isinstance(answer, Refusal):
                lease = self._leased(answer, answer.deadline)
                if answer.repeated:
                    lease._hold.note_unanswered(claim.ttl, backend.clock())
        except BaseException:
            self.abandon()  # interrupted, and granted already
            raise
        if lease is None:
            refusal = cast("Refusal", answer)
            if heard(lock_contended):
                waited, after = backend.clock() - started, refusal.remaining
                yield self._told(lock_contended, waited=waited, retry_after=after)
            raise self._refused(refusal)
        hold = lease._hold
        try:
            if heard(lock_acquired):
                waited = hold.acquired - started
                facts = {"lease": lease, "waited": waited, "attached": False}
                yield self._told(lock_acquired, hold, **facts)
        except GeneratorExit:
            lease._drop()
            raise
        except BaseException:
            yield from hold.release()
            raise
        return lease

    def _leased(self, granted: Grant | Granted, deadline: float) -> Lease:
        """Return the lease of a grant, which is watched from here on."""
        backend, lock = self.backend, self._lock
        try:
            self._hold = hold = Hold(
                backend,
                self.claim,
                granted,
                deadline=deadline,
                acquired=backend.clock(),
                renewing=self._renewing,
                max_hold=self._max_hold,
                min_hold=self._min_hold,
                label=lock.label,
                me=self._me,
            )
            lease = Lease(hold)
            watchdog.watch(hold)
            logger.debug("Acquired lock %.200r of alias %r", self.claim.name, lock.using)
        except BaseException:
            self._forget()
            raise
        return lease

    def _told(self, signal: Signal, hold: Hold | None = None, **facts: Any) -> Tell:
        lock = self._lock
        return Tell(signal, lock.using, {"name": self.claim.name, **facts}, lock.label, hold)

    def _again(self, mine: Hold) -> Flow[Lease | None]:
        """Nest in our own hold, or refuse to; None when the store says it is no longer ours."""
        claim = self.claim
        if claim.limit != mine.claim.limit:
            raise self._of_another_limit(mine.claim.limit)
        if mine.claim.shared and not claim.shared:
            raise AlreadyHeldError(
                "This thread or task shares the lock and would wait for itself to have it alone. "
                "Release the shared lease first; or take it alone, and share it with "
                "lease.downgrade()",
                name=claim.name,
                alias=self._lock.using,
            )
        # The store is asked, for a rolled-back test, a flush or a forced release may have taken
        # the lock away without this process having noticed.
        longer = self._min_hold if self._min_hold > mine.claim.ttl else None
        if mine.is_lost() or not (yield from mine.renew(longer)):
            return None
        given = self._lock.reentrant
        reentrant = mine.backend.conf.reentrant if given is UNSET else given
        with mine.mutex:  # it may be released meanwhile, after the end of a transaction
            if mine.state is not State.ACTIVE or (mine.count == 0 and mine.deferred is None):
                return None
            if reentrant or mine.deferred is not None:
                lease = Lease(mine)
                if self._min_hold:
                    mine.min_hold = max(mine.min_hold, mine.held_for() + self._min_hold)
                if not isinstance(self._me[0], asyncio.Future):
                    mark(mine)
                mine.count += 1  # last: what is interrupted before was not taken again
                return lease
        raise AlreadyHeldError(
            "This thread or task holds the lock already and would wait for itself. Pass the lease "
            "to where it is needed, or use reentrant=True",
            name=mine.claim.name,
            alias=self._lock.using,
        )

    def _refuse_transaction(self) -> Flow[None]:
        """Raise LockInTransactionError where one is open."""
        blocks, by_hand = yield Ask(open_transactions)
        if blocks or by_hand:
            raise LockInTransactionError(
                "The lock is taken inside an open transaction and would be free before the "
                "commit. Use lock(...).atomic(), which commits first, or IN_TRANSACTION='hold'",
                name=self.claim.name,
                alias=self._lock.using,
            )

    def _of_another_limit(self, limit: int) -> InvalidLockError:
        """Return the error of a name that is held with another ``limit`` than ours."""
        held, asked = [
            f"limit={each}" if each else "no limit" for each in (limit, self.claim.limit)
        ]
        return InvalidLockError(
            f"It is held with {held}, and asked for with {asked}: all who use a name must name "
            "the same",
            name=self.claim.name,
            alias=self._lock.using,
        )

    def _refused(self, refusal: Refusal) -> LockNotAcquiredError | InvalidLockError:
        backend, patience = self.backend, self._patience
        if refusal.other_limit is not None:
            return self._of_another_limit(refusal.other_limit)
        note = HolderInfo.loads(refusal.note) if refusal.note else None
        holder = None if note is None else note.holder
        message = f"Held by {holder}" if holder else "Held"
        if note is not None and note.limit:
            message = f"All {note.limit} slots are held, one by {holder}"
        elif note is not None and note.shared:
            message = f"Shared by {holder}"
        if refusal.remaining is not None:
            message += f", for another {max(0.0, refusal.remaining):.1f} s unless renewed"
        if note is not None and note.min_hold is not None:
            message += f", from its grant on for {note.min_hold:g} s at least, by min_hold"
        if relative := of_same_flow(backend, self.claim.key):
            message += (
                f". It is {relative.party()!r} of the same chain of calls, which may be waiting "
                "for you: pass the lease instead of acquiring again"
            )
        kind = LockNotAcquiredError if patience == 0 else LockTimeoutError
        if backend.longest_wait is not None:
            message += f". Waits are limited here to {backend.longest_wait:g} s"
        elif patience:
            message += f". Waited {patience:g} s: increase wait, or shorten the critical section"
        return kind(
            message,
            name=self.claim.name,
            alias=self._lock.using,
            retry_after=refusal.remaining,
            holder=holder,
        )


def check_kind(backend: BaseLockBackend, name: str, *, shared: bool, limited: bool) -> None:
    """Raise UnsupportedOperationError where the store has no locks that several hold."""
    lacks = {
        "shared locks": shared and not backend.supports_shared,
        "locks with a limit": limited and not backend.supports_limit,
    }
    for what, lacking in lacks.items():
        if lacking:
            raise UnsupportedOperationError(
                f"{type(backend).__name__} has no {what}: use an alias of another backend, see "
                "the table of flags in the reference",
                name=name,
                alias=backend.alias,
            )
