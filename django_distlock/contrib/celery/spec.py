"""`TaskLock`: what `locked_task` was told, judged once, when the task is defined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...core import flow
from ...core.durations import UNSET, check_ttl
from ...core.holder import Caller, Place, taken_by
from ...core.values import Claim
from ...current import LeaseArgument
from ...decorators import arguments_of, check_fields, fill
from ...exceptions import InvalidLockError, UnsupportedOperationError
from ...handler import locks
from ...lease import Lease
from ...lock import Lock
from .ticket import Ticket

__all__ = ["DUPLICATE", "ON_CONTENTION", "OnContention", "OnDuplicate", "Once", "TaskLock"]

OnContention = Literal["raise", "skip", "retry", "wait"] | Callable[..., Any]
OnDuplicate = Literal["existing", "raise"]
Once = bool | Literal["queued"]

ON_CONTENTION = ("raise", "skip", "retry", "wait")
DUPLICATE = ("existing", "raise")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLock:
    """The lock of a task, with what to do when another process holds it.

    ``argument`` is what of the task's function is given the lease, and the signature of what is
    sent, without the ``self`` of a bound one; ``place`` is where the function is written.
    """

    lock: Lock
    argument: LeaseArgument
    on_contention: OnContention
    default: Any
    contention_retries: int | None
    countdown: float | None
    min_hold: float | None
    once: Once
    queue_ttl: float
    on_duplicate: OnDuplicate
    place: Place

    def __post_init__(self) -> None:
        check_fields(self.lock.name, self.argument.signature, self.lock.using)
        name = None if callable(self.lock.name) else self.lock.name

        def refuse(message: str) -> InvalidLockError:
            return InvalidLockError(message, name=name, alias=self.lock.using)

        if not callable(self.on_contention) and self.on_contention not in ON_CONTENTION:
            raise refuse(
                f"on_contention is one of {', '.join(map(repr, ON_CONTENTION))}, or a callable, "
                f"not {self.on_contention!r}"
            )
        if not isinstance(self.once, bool) and self.once != "queued":
            raise refuse(f"once is True, False or 'queued', not {self.once!r}")
        if self.once == "queued" and self.argument:
            raise refuse("With once='queued' the lock is released when the task begins: no lease")
        if self.on_duplicate not in DUPLICATE:
            raise refuse(f"on_duplicate is 'existing' or 'raise', not {self.on_duplicate!r}")
        tries = self.contention_retries
        if tries is not None and (isinstance(tries, bool) or not isinstance(tries, int)):
            raise refuse(f"contention_retries is an int or None, not {tries!r}")

    @property
    def ttl(self) -> float:
        """The seconds for which a renewal is good while the task runs."""
        ttl = self.lock.ttl if self.lock.ttl is not UNSET else locks[self.lock.using].conf.ttl
        return check_ttl(ttl)

    def name_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the lock's name for a call with these arguments."""
        arguments = arguments_of(self.argument.signature, tuple(args), kwargs)
        return fill(self.lock.name, arguments, self.lock.using)

    def claim_of(self, ticket: Ticket) -> Claim:
        """Return the claim by which the lock of a message is released."""
        backend = locks[self.lock.using]
        return Claim(ticket.name, backend.key(ticket.name), ticket.owner, self.ttl)

    def lock_of(self, name: str, task: str, task_id: str | None) -> Lock:
        """Return the lock ``name``, beside which it is stored."""
        known = {"task": task} | ({"task_id": task_id} if task_id else {})
        return self.lock._filled(name, metadata={**(self.lock.metadata or {}), **known})

    def obtain(self, lock: Lock, owner: str | None = None) -> Lease:
        """Acquire; of ``owner`` it is taken again at once if that holds it already."""
        if self.once and not locks[lock.using].transferable:
            raise UnsupportedOperationError(
                "A lock of this backend ends with its connection, so it cannot be kept for a "
                "message: use another backend",
                name=str(lock.name),
                alias=lock.using,
            )
        with taken_by(Caller(self.place)):
            return flow.run(lock._obtain(UNSET, owner))
