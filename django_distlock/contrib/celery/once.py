"""Queue-once: the lock is taken when the task is sent, and travels with its message."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar

from celery.app.task import Task
from celery.exceptions import Reject, Retry
from celery.utils import uuid
from celery.utils.time import maybe_make_aware

from ...core import flow
from ...core.hold import State
from ...exceptions import AlreadyHeldError, LockError, LockNotAcquiredError, LockNotHeldError
from ...handler import locks
from ...lease import Lease
from ...lock import Lock
from .running import finish, finish_failed
from .spec import HEADER, TaskLock, Ticket

__all__ = ["OnceTask", "once_base"]

logger = logging.getLogger("django_distlock")

LOOKS = 3  # at a lock that is freed between being refused and being looked at
SLACK = 5.0  # seconds past `expires`, for clocks that differ


class OnceTask(Task[Any, Any]):
    """The base of tasks with ``once=True``."""

    abstract = True
    Request = "django_distlock.contrib.celery.request:OnceRequest"
    distlock: ClassVar[TaskLock]

    # -- sending -----------------------------------------------------------------------------------

    def apply_async(  # type: ignore[override]
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Send the task, unless it is there already; return its AsyncResult or that one's.

        A task whose id is fixed, as in a group, a chord or a chain, is sent in any case, since
        its id is counted on; it takes its turn when it is run. One with ``link`` or ``link_error``
        raises LockNotAcquiredError instead, as these would never be called.
        """
        headers = options.pop("headers", None)
        again = task_id is not None and Ticket.of(headers, task_id) is not None
        if again or self.app.conf.task_always_eager:
            return super().apply_async(args, kwargs, task_id, headers=headers, **options)  # type: ignore[arg-type]
        plain = {key: value for key, value in (headers or {}).items() if key != HEADER}
        spec = self.distlock
        ticket_id = task_id or uuid()
        name = spec.name_of(args or (), kwargs or {})
        lock = spec.lock_of(name, self.name, ticket_id)
        taken = self._queue(
            replace(lock, ttl=self._queued_for(options), wait=0),
            name,
            droppable=task_id is None,
            linked=bool(options.get("link") or options.get("link_error")),
        )
        if taken is None:
            return super().apply_async(args, kwargs, task_id, headers=plain, **options)  # type: ignore[arg-type]
        if not isinstance(taken, Lease):
            return taken
        ticket = Ticket(name, taken._hold.claim.owner, ticket_id)
        try:
            sent = super().apply_async(
                args,  # type: ignore[arg-type]
                kwargs,  # type: ignore[arg-type]
                ticket_id,
                headers=ticket.added_to(plain),
                **options,
            )
        except BaseException as error:
            flow.run(taken._leave(error))
            raise
        # It is the message's now; perhaps it has been freed already.
        taken._hold.leave(State.ACTIVE, State.DETACHED, "it travels with its task")
        taken._done = True
        return sent

    def _queue(self, lock: Lock, name: str, *, droppable: bool, linked: bool) -> Any:
        """Return the lease for a new message, the AsyncResult of the one there is, or None.

        What is ``linked`` to a message would never be called if that was dropped, so it is not.
        """
        looks = 0
        while True:
            try:
                return self.distlock.obtain(lock)
            except (LockNotAcquiredError, AlreadyHeldError) as error:
                if not droppable:
                    return None
                if self.distlock.on_duplicate == "raise" or linked:
                    raise
                info = locks[lock.using].call("inspect", name, name=name)
                found = None if info is None else info.metadata.get("task_id")
                if isinstance(found, str):
                    return self.AsyncResult(found)
                looks += 1
                if info is not None or looks == LOOKS:
                    raise LockNotAcquiredError(
                        "Held by something else than a task of this lock: there is no result to "
                        "return",
                        name=name,
                        alias=lock.using,
                    ) from error

    def _queued_for(self, options: Mapping[str, Any]) -> float:
        """Return for how long the lock has to outlive a message with these options."""
        queued = self.distlock.queue_ttl + self._until(options.get("countdown"))
        queued += self._until(options.get("eta"))
        expires = options.get("expires", self.expires)
        if expires is not None:
            queued = min(queued, self._until(expires) + SLACK)
        return queued

    def _until(self, when: Any) -> float:
        """Return the seconds until a time given as seconds from now or as a datetime."""
        if isinstance(when, str):
            when = datetime.fromisoformat(when)
        if isinstance(when, datetime):
            aware = maybe_make_aware(when, self.app.timezone)
            return max(0.0, (aware - self.app.now()).total_seconds())
        return max(0.0, float(when or 0))

    def clear_lock(self, *args: Any, **kwargs: Any) -> bool:
        """Release the lock of a call with these arguments, as after the queue was purged.

        Whoever holds it: a task that runs under it learns of the loss. Returns whether it was held.
        """
        spec = self.distlock
        try:
            locks[spec.lock.using].force_release(spec.name_of(args, kwargs))
        except LockNotHeldError:
            return False
        return True

    # -- running -----------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, and end its lease when it is known whether it is retried."""
        request: Any = self.request
        if request.called_directly or request._protected:
            return super().__call__(*args, **kwargs)
        request._protected = 1  # as Celery's own: from now on a call is one by the program
        try:
            result = self.run(*args, **kwargs)
        except BaseException as error:
            self._settle(error)
            raise
        self._settle(None)
        return result

    def _settle(self, error: BaseException | None) -> None:
        lease = vars(self.request).pop("distlock_lease", None)
        if lease is None:
            return  # it did not obtain the lock
        if error is None:
            finish(lease)
        elif _comes_again(error):
            delay = self._until(error.when) if isinstance(error, Retry) else 0.0
            try:
                lease._keep(self.distlock.queue_ttl + delay)
            except LockError as failed:
                # The retry takes it again; or has run already, and has freed it.
                logger.info("Task %s[%s]: %s", self.name, self.request.id, failed)
        else:
            finish_failed(lease, error)


def _comes_again(error: BaseException) -> bool:
    """Return whether a task that ended with ``error`` is delivered again."""
    return isinstance(error, Retry) or (isinstance(error, Reject) and bool(vars(error)["requeue"]))


class _Bound(type):
    """Makes a task of the class of its app's tasks, which is known when it is bound to an app.

    A shared task is bound to each app, and each may have a class of its own (``task_cls``).
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> Any:
        app = attributes.get("app")
        if app is None:
            return super().__new__(mcs, name, bases, attributes)
        return type(name, (OnceTask, app.Task), attributes)


class _OfItsApp(metaclass=_Bound):
    """Stands for the base of a task until its app is known."""


def once_base(given: type[Task[Any, Any]] | None) -> type:
    """Return the base of a task with ``once``: of the class that was ``given``, or the app's."""
    if given is None:
        return _OfItsApp
    return type(f"Once{given.__name__}", (OnceTask, given), {"abstract": True})
