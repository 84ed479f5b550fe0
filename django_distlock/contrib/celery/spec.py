"""`TaskLock`: what `locked_task` was told, judged once, when the task is defined.

With `Ticket`, by which the lock travels with its message, and `key_maker`, which names a task's
lock where the program does not.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from celery.app.task import Task
from django.core.serializers.json import DjangoJSONEncoder

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

__all__ = [
    "DUPLICATE",
    "HEADER",
    "ON_CONTENTION",
    "OnContention",
    "OnDuplicate",
    "Once",
    "TaskLock",
    "Ticket",
    "check_options",
    "key_maker",
]

OURS = (
    *("using", "ttl", "wait", "renew", "max_hold", "metadata", "on_contention", "default"),
    *("contention_retries", "countdown", "min_hold", "once", "unique_on", "queue_ttl"),
    *("on_duplicate", "shared", "limit"),
)
FOREIGN = {
    "reentrant": "a task takes its lock once",
    "cancel_on_lost": "a task cannot be cancelled: call current_lease().check() in it",
    "label": "metrics call a task's lock by its template",
    "retry_after": "say countdown=",
    "timeout": "say ttl= for how long the lock outlives its holder, or wait=",
    "lock_timeout": "say ttl=",
    "blocking_timeout": "say wait=",
    "blocking": "say wait=0, or on_contention='wait'",
    "keys": "say unique_on=",
    "unlock_before_run": "say once='queued'",
}
"""What `lock` and other libraries have, and what to write here."""


def check_options(
    options: Mapping[str, Any],
    using: str,
    *,
    once: Once,
    named: bool,
    on_contention: OnContention | None,
    given: Mapping[str, Any],
) -> None:
    """Raise InvalidLockError for an option that has no effect there.

    ``options`` are those of the task, which Celery takes whatever they are called; ``given`` are
    ours that need others.
    """

    def refuse(message: str) -> InvalidLockError:
        return InvalidLockError(message, alias=using)

    for option in options:
        if option in FOREIGN:
            raise refuse(f"locked_task has no option {option!r}: {FOREIGN[option]}")
        if not hasattr(Task, option) and (near := get_close_matches(option, OURS, 1, 0.8)):
            raise refuse(f"locked_task has no option {option!r}: did you mean {near[0]!r}?")
    retries = on_contention == "retry" or (on_contention is None and bool(once))
    needs = {
        "default": (on_contention == "skip", "on_contention='skip'"),
        "contention_retries": (retries, "on_contention='retry'"),
        "countdown": (retries, "on_contention='retry'"),
        "unique_on": (not named, "that no name is given"),
        "queue_ttl": (bool(once), "once=True"),
        "on_duplicate": (bool(once), "once=True"),
    }
    for option, (met, what) in needs.items():
        if given[option] is not None and not met:
            raise refuse(f"{option} does nothing here: it needs {what}")
    for option in ("shared", "limit"):
        if once and given[option] is not None:
            raise refuse(f"once= is for a lock that one alone holds: leave out {option}")
    if once == "queued":
        running = ["default", "contention_retries", "countdown", "min_hold"]
        wrong = [option for option in running if given[option] is not None]
        if on_contention is not None:
            wrong.append("on_contention")
        if wrong:
            raise refuse(
                f"{wrong[0]} does nothing with once='queued', where a task runs without its lock"
            )


OnContention = Literal["raise", "skip", "retry", "wait"] | Callable[..., Any]
OnDuplicate = Literal["existing", "raise"]
Once = bool | Literal["queued"]

ON_CONTENTION = ("raise", "skip", "retry", "wait")
DUPLICATE = ("existing", "raise")

HEADER = "distlock"
LONGEST = 200  # characters of a name that is made; what is longer is shown by its digest


@dataclass(frozen=True, slots=True)
class Ticket:
    """The lock of one message: its name, and its owner if the message has taken it.

    ``task_id`` is the message's: headers that a program copies to another message say nothing.
    ``waits`` counts how often it was sent again because another process held the lock.
    """

    name: str
    owner: str
    task_id: str | None
    waits: int = 0

    @classmethod
    def of(cls, headers: Mapping[str, Any] | None, task_id: str | None) -> Ticket | None:
        """Return the ticket of the message ``task_id``, or None where there is none."""
        raw = (headers or {}).get(HEADER)
        if not isinstance(raw, Mapping) or raw.get("task_id") != task_id:
            return None
        name, owner, waits = raw.get("name"), raw.get("owner"), raw.get("waits", 0)
        if not (isinstance(name, str) and name and isinstance(owner, str)):
            return None
        return cls(name, owner, task_id, waits if type(waits) is int else 0)

    def added_to(self, headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the headers with this ticket."""
        fields = {"name": self.name, "owner": self.owner, "task_id": self.task_id}
        return {**(headers or {}), HEADER: {**fields, "waits": self.waits}}


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


def key_maker(
    task: str, unique_on: Sequence[str] | None, signature: inspect.Signature
) -> Callable[..., str]:
    """Return what makes the name of a call: of the arguments ``unique_on``, or of all.

    Equal for arguments that are equal as JSON, in which they travel: a tuple and a list are.
    """
    if isinstance(unique_on, str):
        raise InvalidLockError(f"unique_on are several arguments, such as [{unique_on!r}]")
    known = signature.parameters.values()
    taken = [each.name for each in known if each.kind is not each.VAR_KEYWORD]
    if len(taken) == len(known):  # else any argument may come
        for name in unique_on or ():
            if name not in taken:
                raise InvalidLockError(
                    f"unique_on names {name!r}, which is no argument of the task. "
                    f"Arguments: {', '.join(taken) or 'none'}"
                )

    def key(**arguments: object) -> str:
        chosen = {
            name: arguments.get(name) for name in (arguments if unique_on is None else unique_on)
        }
        try:
            text = json.dumps(chosen, cls=DjangoJSONEncoder, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise InvalidLockError(
                f"The arguments of {task} make no name: {error}. Name some of them by unique_on, "
                "or give a name such as 'report:{tenant.pk}'"
            ) from error
        name = f"{task}:{text}"
        if len(name) > LONGEST:
            name = f"{task}:{hashlib.sha256(text.encode()).hexdigest()}"
        return name

    key.__name__ = key.__qualname__ = task
    return key
