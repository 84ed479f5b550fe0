"""Cleaning a store, batch by batch: once for all stores, as steps for sync and async mode."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from ..exceptions import InvalidLockError, StoreConflictError
from .clock import Clock
from .durations import check_age
from .flow import Call, Flow, Store
from .values import Cleaned, CleanPolicy

__all__ = ["check_policy", "clean"]

MOST_A_BATCH = 10_000
LONGEST_REST = 0.1  # seconds between two batches
CONFLICTS = (0.01, 0.05, 0.2, 0.5)  # seconds to wait before a batch is tried again


def check_policy(older_than: Any, dry_run: bool, batch: Any, alias: str | None) -> CleanPolicy:
    """Return the policy that a user asks for, or raise InvalidLockError."""
    seconds = check_age(older_than, alias=alias)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= MOST_A_BATCH:
        raise InvalidLockError(
            f"batch is a number from 1 to {MOST_A_BATCH}, not {batch!r}", alias=alias
        )
    return CleanPolicy(older_than=seconds, dry_run=dry_run, batch=batch)


@dataclass(frozen=True, slots=True)
class Rest:
    """Leave the store to others for some seconds."""

    interruptible: ClassVar[bool] = True

    seconds: float

    def do(self) -> None:
        time.sleep(self.seconds)

    async def ado(self) -> None:
        await asyncio.sleep(self.seconds)


def clean(store: Store, policy: CleanPolicy, *, clock: Clock) -> Flow[Cleaned]:
    """Clean from the beginning to the end, and return the sums.

    After a batch that removed something the store is left alone for as long as that took: SQLite
    lets one write at a time, and acquisitions must not queue behind the cleaning.
    """
    removed = seen = 0
    cursor: str | None = ""
    while cursor is not None:
        began = clock()
        batch = yield from _batch(store, policy, cursor)
        removed += batch.removed
        seen += batch.seen
        cursor = batch.cursor
        if cursor is not None and batch.removed and not policy.dry_run:
            yield Rest(min(clock() - began, LONGEST_REST))
    return Cleaned(removed=removed, seen=seen)


def _batch(store: Store, policy: CleanPolicy, cursor: str) -> Flow[Cleaned]:
    delays = iter(CONFLICTS)
    while True:
        try:
            batch: Cleaned = yield Call(store, "clean_batch", (policy, cursor))
            return batch
        except StoreConflictError:
            delay = next(delays, None)
            if delay is None:
                raise
        yield Rest(delay)
