"""The history of locks that were broken, whichever way: a row of `ForcedRelease` for each."""

from __future__ import annotations

import asyncio
import functools
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, router, transaction
from django.dispatch import receiver

from .backends.base import BaseLockBackend
from .core.names import readable
from .core.text import shown
from .core.values import Holder, LockInfo
from .core.worker import events
from .exceptions import LockNotHeldError
from .handler import locks
from .models import ForcedRelease
from .signals import lock_force_released

__all__ = ["break_hold"]

logger = logging.getLogger("django_distlock.history")

NAME = 1000  # characters of a name that are kept


@dataclass(frozen=True, slots=True)
class _Act:
    """Who force-releases a lock now, in which way and why."""

    by: str
    way: ForcedRelease.Way
    why: str = ""


_act: ContextVar[_Act | None] = ContextVar("django_distlock_act", default=None)


def break_hold(
    backend: BaseLockBackend, info: LockInfo, *, by: str, way: ForcedRelease.Way, why: str = ""
) -> None:
    """Force-release the grant that a person was shown, never a newer one.

    Raises LockNotHeldError when it is no longer held, or by another grant.
    """
    if info.fencing_token is None:
        # Without a token to compare, at least not one that came while people were deciding.
        now: LockInfo | None = backend.call("inspect", info.name, name=info.name)
        if now is None or now.owner != info.owner:
            raise LockNotHeldError(
                "Not released: another grant holds it by now", name=info.name, alias=backend.alias
            )
    mark = _act.set(_Act(shown(by, 200), way, shown(why.strip(), 500)))
    try:
        backend.force_release(info.name, fencing_token=info.fencing_token)
    finally:
        _act.reset(mark)


@receiver(lock_force_released, dispatch_uid="django_distlock.history")
def _write(
    *, alias: str, name: str, fencing_token: int | None, holder: Holder, **kwargs: Any
) -> None:
    """Write down a lock that was broken; it stays released, also when that fails."""
    if not locks.is_real(alias):
        return  # a test's lock in memory
    act = _act.get()
    row = ForcedRelease(
        alias=shown(alias),
        # In ASCII, as the backends write it: not every database takes every character.
        name=readable(name[:NAME])[:NAME],
        token=fencing_token,
        holder=readable(str(holder)),
        by="" if act is None else act.by,
        way=ForcedRelease.Way.CODE if act is None else act.way,
        why="" if act is None else act.why,
    )
    if _on_a_loop():
        # A synchronous call on an event loop, where Django allows no write.
        events.submit(functools.partial(_save, row))
    else:
        _save(row)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _save(row: ForcedRelease) -> None:
    try:
        # An error undoes nothing else in a transaction of the caller's.
        with transaction.atomic(using=router.db_for_write(ForcedRelease)):
            row.save()
    except DatabaseError:
        logger.exception("The release of %r in %r is not in the history", row.name, row.alias)
