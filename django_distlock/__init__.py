"""Distributed locks for Django: one API over every store that a project already has.

Importing this package imports no driver and reads no settings.
"""

from __future__ import annotations

from .core.durations import UNSET
from .core.values import Holder, LockInfo
from .current import current_lease
from .exceptions import (
    AlreadyHeldError,
    FenceRejectedError,
    InvalidLockBackendError,
    InvalidLockError,
    LeaseLostError,
    LockBackendError,
    LockDeadlockError,
    LockError,
    LockInTransactionError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    StaleVersionError,
    UnsupportedOperationError,
)
from .fencing.decorators import requires_fence
from .fencing.fields import FenceMarkField, FencingTokenField
from .fencing.querysets import Fenced, FencedManager, FencedQuerySet
from .group import Leases, LockGroup, lock_all, lock_for
from .handler import locks
from .leader import Leader, leader
from .lease import Lease
from .lock import Lock, lock

__all__ = [
    "UNSET",
    "AlreadyHeldError",
    "FenceMarkField",
    "FenceRejectedError",
    "Fenced",
    "FencedManager",
    "FencedQuerySet",
    "FencingTokenField",
    "Holder",
    "InvalidLockBackendError",
    "InvalidLockError",
    "Leader",
    "Lease",
    "LeaseLostError",
    "Leases",
    "Lock",
    "LockBackendError",
    "LockDeadlockError",
    "LockError",
    "LockGroup",
    "LockInTransactionError",
    "LockInfo",
    "LockNotAcquiredError",
    "LockNotHeldError",
    "LockTimeoutError",
    "StaleVersionError",
    "UnsupportedOperationError",
    "current_lease",
    "leader",
    "lock",
    "lock_all",
    "lock_for",
    "locks",
    "requires_fence",
]

__version__ = "1.0.0rc1"
