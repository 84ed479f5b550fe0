"""Every error of this package.

::

    LockError
    ├── LockNotAcquiredError            another holder has it; nothing is wrong
    │   └── LockTimeoutError            ... and we waited for it   (also TimeoutError)
    ├── AlreadyHeldError                this thread or task holds it already
    ├── LockNotHeldError                released or renewed without holding it
    │   └── LeaseLostError              it was ours and is gone
    ├── LockBackendError                the store failed; never said of a lock that is merely held
    │   └── LockDeadlockError           two transactions waited for each other
    ├── LockInTransactionError          taken inside an open transaction
    ├── FenceRejectedError              a newer holder has written
    ├── StaleVersionError               the row changed since it was read
    ├── UnsupportedOperationError       this backend cannot do that   (also NotImplementedError)
    └── InvalidLockError                name, ttl or wait out of range   (also ValueError)
    InvalidLockBackendError(ImproperlyConfigured)                     settings

Errors pickle (Celery sends them between processes) and carry ``name`` and ``alias``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from .core.values import Holder

__all__ = [
    "AlreadyHeldError",
    "FenceRejectedError",
    "InvalidLockBackendError",
    "InvalidLockError",
    "LeaseLostError",
    "LockBackendError",
    "LockDeadlockError",
    "LockError",
    "LockInTransactionError",
    "LockNotAcquiredError",
    "LockNotHeldError",
    "LockTimeoutError",
    "StaleVersionError",
    "UnsupportedOperationError",
    "Where",
]


class Where(TypedDict):
    """The two things that every error names, to be passed on by ``**``."""

    name: str | None
    alias: str | None


SHOWN = 120  # characters of a lock's name that a message shows; names may have 10,000


class LockError(Exception):
    """Base of all lock errors; not raised itself.

    ``name`` is the lock's name and ``alias`` the alias of its backend, each None where there is
    none. The message ends with both.
    """

    name: str | None
    alias: str | None

    def __init__(
        self, message: str = "", *, name: str | None = None, alias: str | None = None
    ) -> None:
        super().__init__(message)
        self.name = name
        self.alias = alias

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        where = []
        if self.name is not None:
            shown = self.name if len(self.name) <= SHOWN else f"{self.name[:SHOWN]}…"
            where.append(f"lock {ascii(shown) if not shown.isprintable() else repr(shown)}")
        if self.alias is not None:
            where.append(f"alias {self.alias!r}")
        return f"{message} [{', '.join(where)}]" if where else message


class LockNotAcquiredError(LockError):
    """Another holder has the lock, and the call did not wait.

    ``retry_after`` is the number of seconds after which the holder's lease runs out unless it is
    renewed, and ``holder`` the `Holder`; each is None where the store did not tell.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        alias: str | None = None,
        retry_after: float | None = None,
        holder: Holder | None = None,
    ) -> None:
        super().__init__(message, name=name, alias=alias)
        self.retry_after = retry_after
        self.holder = holder


class LockTimeoutError(LockNotAcquiredError, TimeoutError):
    """Another holder has the lock, and did not release it within the wait."""


class AlreadyHeldError(LockError):
    """This thread or task holds the lock already, so waiting for it would never end."""


class LockNotHeldError(LockError):
    """The lock was released or renewed by a caller that does not hold it."""


class LeaseLostError(LockNotHeldError):
    """The lease was ours and is gone: it expired, was forced, or went with its transaction."""


class LockBackendError(LockError):
    """The store failed. The driver's error is the ``__cause__``. Nothing is known of the lock."""


class StoreConflictError(LockBackendError):
    """The store asks for another try: a deadlock, a serialization failure, a busy file."""


class StoreUnavailableError(StoreConflictError):
    """The store could not answer; another of its servers may, when it has taken over."""


class LockDeadlockError(LockBackendError):
    """Two transactions waited for each other, and the database has ended this one."""


class LockInTransactionError(LockError):
    """The lock was taken inside an open transaction, which its release would precede."""


class FenceRejectedError(LockError):
    """A newer holder has written, or one under another lock. Nothing was written now.

    ``pks`` are the primary keys of the rows that refused, the first hundred of them.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        alias: str | None = None,
        pks: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message, name=name, alias=alias)
        self.pks = pks


class StaleVersionError(LockError):
    """The row was changed or deleted by another writer since it was read. Nothing was written.

    ``model`` is the label of the model, ``pks`` are the keys of the rows concerned, ``using`` is
    the alias of the database, and ``attempts`` counts how often `retry_on_conflict` has tried.
    """

    def __init__(
        self,
        message: str = "",
        *,
        name: str | None = None,
        alias: str | None = None,
        model: str = "",
        pks: tuple[object, ...] = (),
        using: str = "",
    ) -> None:
        super().__init__(message, name=name, alias=alias)
        self.model = model
        self.pks = pks
        self.using = using
        self.attempts = 1

    def __str__(self) -> str:
        tried = f" (tried {self.attempts} times)" if self.attempts > 1 else ""
        return super().__str__() + tried


class UnsupportedOperationError(LockError, NotImplementedError):
    """This backend cannot do that."""


class InvalidLockError(LockError, ValueError):
    """A name, ttl, wait or option is out of range. The store was not touched."""


class InvalidLockBackendError(ImproperlyConfigured):
    """The DISTLOCKS setting is wrong."""
