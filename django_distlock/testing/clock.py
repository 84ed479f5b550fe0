"""`advance_clock`: time passes for locks in memory without waiting for it."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.durations import Duration, check_wait
from ..exceptions import InvalidLockError
from ..handler import locks
from .alias_overrides import is_overridden
from .memory import MemoryBackend
from .telling import atold, told

__all__ = ["aadvance_clock", "advance_clock"]


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
