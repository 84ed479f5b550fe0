"""A task's body under its lock: taking, contention, and the end of the lease."""

from __future__ import annotations

import functools
import inspect
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery.app.task import Task
from celery.exceptions import Reject, Retry

from ...core import flow
from ...current import running_under
from ...decorators import done
from ...exceptions import (
    LockBackendError,
    LockNotAcquiredError,
)
from ...handler import locks
from ...lease import Lease
from .spec import TaskLock, Ticket

__all__ = ["finish", "finish_failed", "under_lock"]

logger = logging.getLogger("django_distlock")

LEAST_COUNTDOWN = 0.1
# By which a lease may seem to last longer than it does: a statement that has waited for a row, or
# for SQLite's file, may tell the time at which it began to, and a renewal may have come meanwhile.
LATE = 60.0
JITTER = 0.25  # of the countdown, so that those who were refused together do not come together


def under_lock(function: Callable[..., Any], spec: TaskLock, *, bind: bool) -> Callable[..., Any]:
    """Return ``function`` as the body of a bound task that runs under its lock."""

    @functools.wraps(function)
    def run(task: Task[Any, Any], /, *args: Any, **kwargs: Any) -> Any:
        body = functools.partial(function, task) if bind else function
        request = task.request
        sent = not request.called_directly
        ticket = Ticket.of(request.headers, request.id) if sent and spec.once else None
        if spec.once == "queued":
            if ticket is not None and ticket.owner:
                _leave_queue(spec, ticket)
            return done(body(*args, **kwargs), function)
        try:
            name = ticket.name if ticket else spec.name_of(args, kwargs)
            lease = _take(spec, task, name, ticket)
        except LockNotAcquiredError as error:
            given = (task, *args) if bind else args
            return _contended(spec, task, error, given, kwargs)
        args, kwargs = spec.argument.filled([lease], args, kwargs)
        with running_under([lease]):
            if spec.once and sent:
                # OnceTask.__call__ ends it, which knows whether there is a retry.
                request.distlock_lease = lease  # type: ignore[attr-defined]
                result = done(body(*args, **kwargs), function)
                lease.check()
                return result
            try:
                result = done(body(*args, **kwargs), function)
            except BaseException as error:
                finish_failed(lease, error)
                raise
            finish(lease)
            return result

    # Celery reads from it what may be sent.
    first = inspect.Parameter("_task", inspect.Parameter.POSITIONAL_ONLY)
    shown = [*spec.argument.signature.parameters.values()]
    run.__signature__ = spec.argument.signature.replace(parameters=[first, *shown])  # type: ignore[attr-defined]
    return run


def _leave_queue(spec: TaskLock, ticket: Ticket) -> None:
    """Release the lock of a message whose task begins, so that it can be sent again."""
    try:
        flow.run(flow.insist(locks[spec.lock.using], "release", spec.claim_of(ticket)))
    except LockBackendError as error:  # it ends with its ttl; the task is not to be lost for that
        logger.error("The task has begun: %s", error)  # noqa: TRY400 - it says all


def _take(spec: TaskLock, task: Task[Any, Any], name: str, ticket: Ticket | None) -> Lease:
    lock = replace(spec.lock_of(name, task.name, task.request.id), min_hold=spec.min_hold)
    if ticket is None or not ticket.owner:
        lease = spec.obtain(lock)
    elif not (task.request.delivery_info or {}).get("redelivered"):
        return spec.obtain(lock, ticket.owner)
    else:
        # It was delivered before, and perhaps still runs there: a broker that hears nothing of a
        # message for long gives it to somebody else. So being the owner is not enough.
        try:
            lease = spec.obtain(replace(lock, wait=0))
        except LockNotAcquiredError as error:
            if error.retry_after is None or error.retry_after <= spec.ttl + LATE:
                raise
            return spec.obtain(lock, ticket.owner)  # longer than it ever is when running: not begun
    if spec.once and not task.request.called_directly:
        # What is sent by a retry has to find the lock that was taken now.
        ticket = Ticket(name, lease._hold.claim.owner, task.request.id)
        task.request.headers = ticket.added_to(task.request.headers)
    return lease


# -- when another process holds it ---------------------------------------------------------------


def _contended(
    spec: TaskLock,
    task: Task[Any, Any],
    error: LockNotAcquiredError,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    request = task.request
    here = request.called_directly or request.is_eager  # there is nobody who would run it later
    # One that was delivered before is held up by itself, by a run that was killed or still goes on:
    # never dropped, however often it was sent again for that.
    ticket = Ticket.of(request.headers, request.id) if spec.once else None
    itself = ticket is not None and bool(ticket.owner or ticket.waits)
    if (spec.on_contention == "retry" or itself) and not here:
        raise _again(spec, task, error)
    if callable(spec.on_contention):
        return spec.on_contention(error, *args, **kwargs)
    if spec.on_contention == "skip":
        logger.info("Task %s[%s] is skipped: %s", task.name, request.id, error)
        return spec.default
    raise error


def _again(spec: TaskLock, task: Task[Any, Any], error: LockNotAcquiredError) -> Exception:
    """Send the task again for when the holder's lease may have run out; return what says so.

    It does not count as one of the task's retries: those are for its failures.
    """
    request = task.request
    name = error.name or ""
    before = Ticket.of(request.headers, request.id) or Ticket(name, "", request.id)
    # Without the owner: it belongs to a run that may still go on.
    ticket = replace(before, owner="", waits=before.waits + 1)
    if spec.contention_retries is not None and ticket.waits > spec.contention_retries:
        return error
    countdown = _countdown(spec, error, before.waits)
    signature = task.signature_from_request(
        request,
        countdown=countdown,
        retries=request.retries,
        headers=ticket.added_to(request.headers),
    )
    try:
        signature.apply_async()
    except Exception as failed:  # noqa: BLE001 - as Celery's own retry() does
        return Reject(failed, requeue=False)
    when: Any = countdown  # to its types a Real, which no float is
    return Retry(exc=error, when=when, sig=signature)


def _countdown(spec: TaskLock, error: LockNotAcquiredError, waits: int) -> float:
    """Return after how many seconds to try again: soon at first, then the more seldom.

    Never later than the holder's lease may have run out, unless the program has said when.
    """
    if spec.countdown is not None:
        seconds = spec.countdown
    else:
        left = spec.ttl if error.retry_after is None else min(error.retry_after, spec.ttl)
        seconds = min(left, 2.0 ** min(waits, 30))
    return max(seconds, LEAST_COUNTDOWN) * (1 + random.uniform(0, JITTER))  # noqa: S311 - no secret


# -- the end ---------------------------------------------------------------------------------------


def finish(lease: Lease) -> None:
    """End the lease of a task that succeeded.

    Raises LeaseLostError when it was lost. A store that fails now takes nothing away from the work.
    """
    try:
        flow.run(lease._leave(None))
    except LockBackendError as error:
        logger.error("The task has ended: %s", error)  # noqa: TRY400 - it says all


def finish_failed(lease: Lease, error: BaseException) -> None:
    """End the lease of a task that failed, at once: it can be retried within its min_hold."""
    lease._hold.min_hold = 0.0
    flow.run(lease._leave(error))
