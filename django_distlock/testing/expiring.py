"""`expire_lease` and `advance_clock`: a lease is lost, and time passes, without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..core import flow, registry
from ..core.clock import now
from ..core.durations import Duration, check_wait
from ..core.flow import Flow
from ..core.hold import Hold
from ..core.worker import callbacks, on_worker
from ..exceptions import InvalidLockError, LockNotHeldError
from ..handler import locks
from ..lease import Lease
from .alias_overrides import is_overridden
from .memory import MemoryBackend

__all__ = ["aadvance_clock", "advance_clock", "aexpire_lease", "expire_lease"]

REASON = "a test said so"
LIMIT = 5.0  # seconds: a callback that takes longer is not waited for


def told() -> None:
    """Return when the callbacks and receivers that are due have run on their threads."""
    if not on_worker():  # a callback would wait for itself
        callbacks.drain(now() + LIMIT)


async def atold() -> None:
    """Return as `told`; the event loop goes on meanwhile, which a callback may need."""
    end = now() + LIMIT
    while not callbacks.is_idle() and now() < end:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)  # what they have handed to the loop, a cancellation say, comes first


def expire_lease(lease: Lease | str, *, using: str = "default", reason: str = REASON) -> None:
    """Make a lease lost as if the store had said so, and free the lock for others to take.

    ``lease`` is the lease, or the name of a lock that this process holds by the alias ``using``,
    where the lease is out of the test's reach. ``check()`` and the end of its block raise
    LeaseLostError with ``reason``, ``cancel_on_lost`` cancels, and the ``on_lost`` callbacks and
    receivers of `lock_released` have been called when this returns. Works on every backend. Raises
    LockNotHeldError when it is not held.
    """
    flow.run(_lose(lease, using, reason))
    told()


async def aexpire_lease(
    lease: Lease | str, *, using: str = "default", reason: str = REASON
) -> None:
    """Lose as `expire_lease`."""
    await flow.arun(_lose(lease, using, reason))
    await atold()


def _lose(lease: Lease | str, using: str, reason: str) -> Flow[None]:
    hold = _named(lease, using) if isinstance(lease, str) else _of(lease)
    renewing, hold.renewing = hold.renewing, False  # else a renewal may be the first to notice
    try:
        yield from flow.insist(hold.backend, "release", hold.claim)
    except BaseException:
        hold.renewing = renewing
        raise
    hold.lose(reason)


def _of(lease: Lease) -> Hold:
    lease.check()
    return lease._hold


def _named(name: str, using: str) -> Hold:
    backend = locks[using]
    here = {hold.claim.name: hold for hold in registry.every(backend) if not hold.is_lost()}
    if name not in here:
        names = ", ".join(map(repr, sorted(here))) or "nothing"
        raise LockNotHeldError(f"This process holds {names} of it", name=name, alias=using)
    return here[name]


def advance_clock(
    seconds: Duration, *, using: str | Iterable[str] | None = None, renew: bool = False
) -> None:
    """Let time pass at once for the locks under `override_locks`: each is that much older.

    As if this process had been paused, or the machine asleep: nothing is renewed in between. A
    lease whose ttl has passed is lost: its ``on_lost`` callbacks and the receivers of
    `lock_released` have been called when this returns, and others can take the lock. One that
    lasts is renewed right after, as the watchdog does. With ``renew=True`` the watchdog went on in
    that time, so only a lease that is not renewed expires. Other aliases and waits for a lock go by
    the real clock. ``using`` limits it to one alias or some. Raises InvalidLockError when no
    alias is under `override_locks`.
    """
    _turn(seconds, using, renew)
    told()


async def aadvance_clock(
    seconds: Duration, *, using: str | Iterable[str] | None = None, renew: bool = False
) -> None:
    """Let time pass as `advance_clock`."""
    _turn(seconds, using, renew)
    await atold()


def _turn(seconds: Duration, using: str | Iterable[str] | None, renew: bool) -> None:
    passing = check_wait(seconds, what="seconds")
    if passing is None:
        raise InvalidLockError("seconds is a number of seconds or a timedelta, not None")
    for backend in _in_memory(using):
        left = passing
        while left > 0:
            pace = backend.shortest_renewal() if renew else None
            step = left if pace is None else min(left, pace)
            backend.turn(step)
            left -= step


def _in_memory(using: str | Iterable[str] | None) -> list[MemoryBackend]:
    aliases = [using] if isinstance(using, str) else list(locks if using is None else using)
    covered = [locks[alias] for alias in aliases if is_overridden(alias)]
    found = [backend for backend in covered if isinstance(backend, MemoryBackend)]
    if not found or (using is not None and len(found) < len(aliases)):
        raise InvalidLockError(
            "The clock turns only for locks under override_locks, not for those of a real store: "
            f"use override_locks() around this, for {', '.join(map(repr, aliases))}"
        )
    return found
