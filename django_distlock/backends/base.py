"""What a store has to do: the primitives, the flags, and what is built from them once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from typing import ClassVar, Literal

from django.core.checks import CheckMessage

from ..conf import AliasConf, OptionSpec, parse_options
from ..core import cleaning, clock, flow, registry
from ..core.backoff import Backoff
from ..core.calls import Calls
from ..core.durations import MAX_TTL, Duration
from ..core.fork import after_fork
from ..core.names import check_name, key_of
from ..core.values import Claim, Cleaned, CleanPolicy, Grant, LockInfo, Refusal
from ..exceptions import InvalidLockBackendError, LockNotHeldError, UnsupportedOperationError
from ..signals import Tell, heard, lock_force_released
from ..transactions import Ask, is_pending, sweep
from .options import positive

__all__ = ["BaseLockBackend", "attempt_each"]


class BaseLockBackend(Calls):
    """A technique and a store behind an alias.

    A subclass implements the primitives `try_acquire`, `renew`, `release`, `inspect` and `scan`,
    each one attempt without waiting, and sets the flags. Waiting, retrying, re-entry, renewal in
    the background, decorators and the async twins are built above, once. `testing.contract` is
    the test-suite that a backend has to pass.
    """

    # Flags: what the store can do. The contract suite holds each backend to them.
    scope: Literal["process", "host", "cluster"] = "cluster"
    exclusive: ClassVar[bool] = True
    supports_fencing: ClassVar[bool] = True
    fair: bool = False
    notifies: bool = False
    native_async: ClassVar[bool] = False
    thread_sensitive: ClassVar[bool] = False
    queues: bool = False
    counts_waiters: bool = False
    cleans: ClassVar[bool] = False
    transferable: ClassVar[bool] = True
    shows_holders: ClassVar[bool] = True
    force_releases: ClassVar[bool] = True
    supports_shared: bool = False
    supports_limit: bool = False

    grace: ClassVar[float] = 1.0
    # Seconds that one attempt may wait for the store's answer, however short the wait.
    min_attempt_timeout: float = flow.MIN_ATTEMPT_TIMEOUT
    # Seconds in its queue after which the store is asked again.
    queue_limit: float = flow.QUEUE_LIMIT
    longest_ttl: ClassVar[float] = MAX_TTL
    # Claims that `try_acquire_many` and `release_many` are given; 1: each is asked for by itself.
    at_once: int = 1
    poll: ClassVar[tuple[float, float]] = (0.005, 0.1)
    options: ClassVar[OptionSpec] = {"COMMAND_TIMEOUT": positive}

    def __init__(self, alias: str, conf: AliasConf) -> None:
        self.alias = alias
        self.conf = conf
        after_fork(self.forget_parent)
        if conf.ttl > self.longest_ttl:
            raise InvalidLockBackendError(
                f"DISTLOCKS[{alias!r}]['TTL'] is at most {self.longest_ttl:g} with this backend, "
                f"not {conf.ttl:g}."
            )
        self.opts = parse_options(alias, conf.options, self.options)
        self.command_timeout: float = self.opts.get("COMMAND_TIMEOUT", 5.0)
        self.backoff = Backoff(*self.poll)
        self.clock: clock.Clock = clock.now
        # Set in tests: nobody waits for longer, whatever the caller asks for.
        self.longest_wait: float | None = None

    # -- primitives ------------------------------------------------------------------------------

    def try_acquire(self, claim: Claim, limit: float) -> Grant | Refusal:
        """Attempt once, atomically and without waiting; take at most ``limit`` seconds.

        Asked again by the owner that holds, it grants the same token again, with a whole ttl:
        drivers resend after a broken connection.
        """
        raise NotImplementedError

    def try_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        """Attempt each once, without queueing; None: it was not granted.

        They are of different exclusive locks, in the order of their keys. What comes after one that
        was not granted need not be asked for. A store that can ask for many in few round trips
        overrides this, and `release_many`, and sets `at_once`.
        """
        return attempt_each(lambda claim: self.try_acquire(claim, 0.0), claims)

    def renew(self, claim: Claim) -> bool:
        """Start the ttl again if the claim's owner holds the lock; False if it does not.

        By a shared claim whose owner holds the lock alone it is shared from now on.
        """
        raise NotImplementedError

    def renew_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Renew several; a store that can do it in one statement overrides this."""
        return [self.renew(claim) for claim in claims]

    def release(self, claim: Claim) -> bool:
        """Free the lock if the claim's owner holds it, and withdraw a queued attempt of it."""
        raise NotImplementedError

    def release_many(self, claims: Sequence[Claim]) -> list[bool]:
        """Release several exclusive locks, as `try_acquire_many` acquires them."""
        return [self.release(claim) for claim in claims]

    def inspect(self, name: str) -> LockInfo | None:
        """Return who holds ``name``, or None. For people and tools.

        A store that does not show its holders says of a held lock that it is held: all but the
        name is left out of its LockInfo.
        """
        raise NotImplementedError

    def holders(self, name: str) -> list[LockInfo]:
        """Return all who hold ``name``; a store where there may be several overrides this."""
        info = self.inspect(name)
        return [] if info is None else [info]

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        """Yield every held lock whose name begins with ``prefix``, in any order."""
        raise NotImplementedError

    def scan_expired(self, prefix: str) -> Iterator[LockInfo]:
        """Yield the leases that ran out and were not released, as far as the store keeps them."""
        return iter(())

    def clean_batch(self, policy: CleanPolicy, cursor: str) -> Cleaned:
        """Remove what is idle among the next ``policy.batch`` entries after ``cursor``.

        Idle is a name that was neither granted nor held for ``policy.older_than`` seconds of the
        store's clock. Judged in the same step as it is removed: never a held lock, nor one that is
        taken meanwhile. The first batch has the cursor "". A store that sets ``cleans`` has this.
        """
        raise UnsupportedOperationError(
            f"{type(self).__name__} has nothing that could be cleaned", alias=self.alias
        )

    def pause(self, claim: Claim, seconds: float) -> None:
        """Return after ``seconds``, or before when trying again may help. Only a hint."""
        time.sleep(seconds)

    async def apause(self, claim: Claim, seconds: float) -> None:
        """Pause on the event loop; it occupies no thread."""
        await asyncio.sleep(seconds)

    def queue(self, claim: Claim, limit: float, left: float | None) -> Grant | Refusal | bool:
        """Wait in the store's queue until trying again may help, for ``limit`` seconds at most.

        Asked for after a Refusal that says `queue`. False when there is no queue to wait in now:
        the caller pauses then. Only a hint, as `pause` is; or, where an attempt was made when the
        wait was over, its answer: a Grant that says when it was ``asked`` for. A queue entry is
        kept until the claim is released, whether it was granted or not; ``left`` is how long it may
        go on waiting in all (None: without limit).
        """
        return False

    def is_contended(self, claim: Claim) -> bool:
        """Return whether to `queue` before the first attempt, as others are known to wait."""
        return False

    def is_queued(self, claim: Claim) -> bool:
        """Return whether a claim that was refused is in a queue, which has to be left."""
        return self.queues

    def withdraw(self, claim: Claim) -> bool:
        """Leave the queue with a claim that was refused, and of which no question is open."""
        return self.release(claim)

    # -- for the layers above and for tools --------------------------------------------------------

    def max_ttl(self, ttl: float) -> float:
        """Return how long the store may keep a lock of ``ttl`` whose holder has crashed."""
        return ttl

    def sure_until(self, claim: Claim, *, foreseen: bool = False) -> float | None:
        """Return until when, by `clock`, a granted claim can be relied on, whatever its ttl is.

        A store that keeps locks for as long as a session lives knows this: when it has not heard
        of its session for too long, or knows that it ended, its leases are lost. None: the ttl
        alone counts. Asked at each check of a lease, so the store is not asked; see also
        `notice_losses`. ``foreseen`` asks what it will be if all goes on as it does now: with a
        connection that is up, by which the session is kept, the ttl alone counts.
        """
        return None

    def notice_losses(self) -> None:
        """Note which leases are lost: for a store to call when `sure_until` has changed."""
        for hold in registry.every(self):
            hold.is_lost()

    def transaction_database(self) -> str:
        """Return the database whose transactions can hold a lock: see `Lock.atomic`.

        A claim that says ``in_transaction`` is acquired on its connection, in its transaction.
        """
        raise UnsupportedOperationError(
            "xact=True needs the advisory backend on PostgreSQL, whose server frees a lock with "
            "the transaction. Leave xact out, and atomic() holds the lock around the transaction",
            alias=self.alias,
        )

    def place(self) -> object:
        """Return where the locks of now are kept; work in the background is bound to it.

        Django's test runner lets an alias mean the test database for a while. What was begun there
        is not carried on elsewhere: see `watchdog`.
        """
        return None

    def check(self) -> list[CheckMessage]:
        """Return what `manage.py check` should say of this alias, without touching the store."""
        return []

    def check_deploy(self) -> list[CheckMessage]:
        """Return what `manage.py check --deploy` should say as well."""
        return []

    def cleaned_with(self) -> Hashable:
        """Return what is equal for the aliases that one cleaning covers: those of one table."""
        return (type(self), self.alias)

    def end_idle(self) -> None:
        """End what the store keeps for this process and what holds no lock, as a session does.

        Called at the interpreter's end; it takes a second at most, and raises nothing of the
        store's. What holds a lock that was not released ends by its ttl.
        """

    def close_thread(self) -> None:
        """Close what this thread has open; called by our own threads when they have done."""

    # -- built from the primitives -----------------------------------------------------------------

    def key(self, name: str) -> str:
        """Return the key of ``name`` under this alias's PREFIX."""
        return key_of(self.conf.prefix, name)

    def held(self, prefix: str = "") -> Iterator[LockInfo]:
        """Yield every held lock of this alias whose name begins with ``prefix``.

        Each as LockInfo: name, holder, fencing token, since and until when, waiters where known,
        metadata. Raises LockBackendError when the store fails, UnsupportedOperationError where
        it does not show its holders (flag ``shows_holders``).
        """
        if not self.shows_holders:
            raise UnsupportedOperationError(
                f"{type(self).__name__} does not show who holds its locks; lock(name).locked() "
                "tells of one whether it is held",
                alias=self.alias,
            )
        if is_pending():
            sweep()
        try:
            yield from self.scan(prefix)
        except self.store_errors as error:
            raise self._failure("scan", error, None) from error

    def expired(self, prefix: str = "") -> Iterator[LockInfo]:
        """Yield as `held` the leases that ran out and that were not released or taken since.

        Their holders have crashed, say, or hang. A store may forget them at any time.
        """
        try:
            yield from self.scan_expired(prefix)
        except self.store_errors as error:
            raise self._failure("scan", error, None) from error

    async def aheld(self, prefix: str = "") -> AsyncIterator[LockInfo]:
        """Yield as `held`, off the event loop."""
        if is_pending():
            await Ask(sweep).ado()  # on the thread of the transactions, which may be another one
        for info in await self.off_loop(lambda: list(self.held(prefix))):
            yield info

    def force_release(self, name: str, *, fencing_token: int | None = None) -> LockInfo:
        """Free ``name`` whoever holds it, and return who did.

        With ``fencing_token`` only that grant is broken, never a newer one; without it, the one
        that is seen first. Compared in the store, so that the next holder is never hit. The holder
        learns of the loss by its next renewal. Raises LockNotHeldError when it is free, or held by
        another grant, UnsupportedOperationError where another process cannot free a lock (flag
        ``force_releases``).
        """
        return flow.run(self._force(check_name(name, self.alias), fencing_token))

    async def aforce_release(self, name: str, *, fencing_token: int | None = None) -> LockInfo:
        """Free as `force_release`."""
        return await flow.arun(self._force(check_name(name, self.alias), fencing_token))

    def _holders_of(self, name: str) -> flow.Flow[list[LockInfo]]:
        """Return all who hold ``name``; asked for by one call where there is one at most."""
        info: LockInfo | None = yield flow.Call(self, "inspect", (name,), name)
        if info is None or not _is_one_of_several(info):
            return [] if info is None else [info]
        held: list[LockInfo] = yield flow.Call(self, "holders", (name,), name)
        return held

    def check_forcing(self, name: str) -> None:
        """Raise UnsupportedOperationError where only the holder can free a lock."""
        if not self.force_releases:
            raise UnsupportedOperationError(
                f"{type(self).__name__} cannot free what another process holds: end that process, "
                "or wait until its lease runs out",
                name=name,
                alias=self.alias,
            )

    def _force(self, name: str, token: int | None) -> flow.Flow[LockInfo]:
        self.check_forcing(name)
        if is_pending():
            yield Ask(sweep)
        held = yield from self._holders_of(name)
        found = [info for info in held if token in (None, info.fencing_token)]
        if not found:
            tokens = ", ".join(str(info.fencing_token) for info in held)
            now = f"token {tokens} holds it" if held else "it is not held"
            raise LockNotHeldError(f"Not released: {now}", name=name, alias=self.alias)
        info = found[0]
        claim = Claim(name, self.key(name), info.owner, self.conf.ttl)
        if _is_one_of_several(info):
            claim = claim._replace(shared=info.shared, limit=info.limit or 0)
        if not (yield from flow.insist(self, "release", claim)):
            raise LockNotHeldError(
                "Not released: another grant holds it by now", name=name, alias=self.alias
            )
        facts = {"name": name, "fencing_token": info.fencing_token, "holder": info.holder}
        if heard(lock_force_released):
            yield Tell(lock_force_released, self.alias, facts)
        return info

    def clean(self, *, older_than: Duration, dry_run: bool = False, batch: int = 500) -> Cleaned:
        """Remove what the store keeps of names that were not held for ``older_than`` seconds.

        Returns how many entries were ``removed`` of those ``seen``; a dry run removes nothing and
        only says how many it would. ``batch`` entries are read with each call to the store.
        From 60 seconds on; RETENTION is not asked here, see `manage.py cleanlocks`, which does.
        Aliases that share a table are cleaned together, whatever their PREFIX. Raises
        LockBackendError when the store fails, UnsupportedOperationError where there is nothing to
        clean (flag ``cleans``).
        """
        return flow.run(self._clean(older_than, dry_run, batch))

    async def aclean(
        self, *, older_than: Duration, dry_run: bool = False, batch: int = 500
    ) -> Cleaned:
        """Clean as `clean`."""
        return await flow.arun(self._clean(older_than, dry_run, batch))

    def _clean(self, older_than: Duration, dry_run: bool, batch: int) -> flow.Flow[Cleaned]:
        policy = cleaning.check_policy(older_than, dry_run, batch, self.alias)
        return cleaning.clean(self, policy, clock=self.clock)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.alias!r}>"


def attempt_each(
    attempt: Callable[[Claim], Grant | Refusal], claims: Sequence[Claim]
) -> list[Grant | None]:
    """Attempt one after the other, up to the first that is refused; None for that and the rest."""
    granted: list[Grant | None] = [None] * len(claims)
    for number, claim in enumerate(claims):
        answer = attempt(claim)
        if not isinstance(answer, Grant):
            break
        granted[number] = answer
    return granted


def _is_one_of_several(info: LockInfo) -> bool:
    return info.shared or info.limit is not None
