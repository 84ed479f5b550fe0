"""`locked_task`: a Celery task that runs under a lock."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from celery import Celery, shared_task
from celery.app.task import Task

from ...core.durations import UNSET, Duration, Unset, Wait, check_ttl
from ...core.holder import place_of
from ...current import LeaseArgument, signature_of
from ...decorators import Name, check_function, is_coroutine, refuse_bare
from ...exceptions import InvalidLockError
from ...lock import lock
from .once import once_base
from .running import under_lock
from .spec import Once, OnContention, OnDuplicate, TaskLock, check_options, key_maker

__all__ = ["locked_task"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def locked_task(
    name: Name | None = ...,
    /,
    *,
    using: str = ...,
    ttl: Duration | Unset = ...,
    wait: Wait = ...,
    renew: bool | Unset = ...,
    max_hold: Wait = ...,
    shared: bool = ...,
    limit: int | None = ...,
    metadata: Mapping[str, Any] | None = ...,
    on_contention: OnContention | None = ...,
    default: Any = ...,
    contention_retries: int | None = ...,
    countdown: Duration | None = ...,
    min_hold: Duration | None = ...,
    once: Once = ...,
    unique_on: Sequence[str] | None = ...,
    queue_ttl: Duration | None = ...,
    on_duplicate: OnDuplicate | None = ...,
    app: Celery | None = ...,
    bind: Literal[False] = ...,
    **options: Any,
) -> Callable[[Callable[P, R]], Task[P, R]]: ...


@overload
def locked_task(
    name: Name | None = ...,
    /,
    *,
    using: str = ...,
    ttl: Duration | Unset = ...,
    wait: Wait = ...,
    renew: bool | Unset = ...,
    max_hold: Wait = ...,
    shared: bool = ...,
    limit: int | None = ...,
    metadata: Mapping[str, Any] | None = ...,
    on_contention: OnContention | None = ...,
    default: Any = ...,
    contention_retries: int | None = ...,
    countdown: Duration | None = ...,
    min_hold: Duration | None = ...,
    once: Once = ...,
    unique_on: Sequence[str] | None = ...,
    queue_ttl: Duration | None = ...,
    on_duplicate: OnDuplicate | None = ...,
    app: Celery | None = ...,
    bind: Literal[True],
    **options: Any,
) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...


def locked_task(
    name: Name | None = None,
    /,
    *,
    using: str = "default",
    ttl: Duration | Unset = UNSET,
    wait: Wait = UNSET,
    renew: bool | Unset = UNSET,
    max_hold: Wait = UNSET,
    shared: bool = False,
    limit: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    on_contention: OnContention | None = None,
    default: Any = None,
    contention_retries: int | None = None,
    countdown: Duration | None = None,
    min_hold: Duration | None = None,
    once: Once = False,
    unique_on: Sequence[str] | None = None,
    queue_ttl: Duration | None = None,
    on_duplicate: OnDuplicate | None = None,
    app: Celery | None = None,
    bind: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function a Celery task that runs under a lock.

    It takes the place of ``@shared_task``, or with ``app`` of ``@app.task``, and their options.

    - ``name``: a template over the task's arguments, such as ``"report:{tenant}"``, or a callable
      that is given them and returns the name. The ``self`` of ``bind=True`` is none of them. Left
      out: the task's own name and its arguments, or those of them that ``unique_on`` names.
    - ``on_contention``: what a task does at its start when the lock is held:
      ``"raise"`` fails with LockNotAcquiredError; ``"skip"`` ends it with the result ``default``;
      ``"retry"`` sends it again for later; ``"wait"`` waits for
      up to ``wait`` and then fails with LockTimeoutError. Or a callable, called in place of the
      task with the LockNotAcquiredError and what the task is given. Left out: ``"raise"``, with
      ``once``: ``"retry"``.
    - ``wait``: seconds or timedelta to wait first. Left out: 0, with ``"wait"`` the alias's WAIT.
    - ``contention_retries``: how often ``"retry"`` sends it again; None: without a limit. These do
      not count as retries of the task.
    - ``countdown``: seconds or timedelta after which ``"retry"`` tries again, up to a quarter more.
      Left out: 1, 2, 4 and so on, never more than is left of the holder's lease.
    - ``min_hold``: seconds or timedelta for which the lock is held from the start on, though the
      task has succeeded before: for a beat on each of several hosts.
    - ``once``: take the lock already when the task is sent, and keep it until the task has ended,
      over its retries. A process that sends it meanwhile sends nothing, and gets the AsyncResult
      of the task that is there; with ``on_duplicate="raise"`` LockNotAcquiredError. ``"queued"``:
      only until the task begins; what is sent from then on is queued again, and may run beside it.
    - ``queue_ttl``: seconds or timedelta for which a lock outlives a message that no worker takes
      (``once``), from its eta on. Left out: an hour.
    - The others are those of `lock`, and those of the task.

    A task that fails frees the lock at once. One that lost its lease fails with LeaseLostError
    when it ends. Its lease is what `current_lease` returns, and is passed to a parameter that is
    annotated `Lease`. Raises InvalidLockError for options out of range, for those that do nothing
    beside the others, and for a template that names what is no argument of the task.
    """
    if callable(name):
        refuse_bare("locked_task", name)
    check_options(
        options,
        using,
        once=once,
        named=name is not None,
        on_contention=on_contention,
        given={
            "default": default,
            "contention_retries": contention_retries,
            "countdown": countdown,
            "min_hold": min_hold,
            "unique_on": unique_on,
            "queue_ttl": queue_ttl,
            "on_duplicate": on_duplicate,
            "shared": shared or None,
            "limit": limit,
        },
    )
    if on_contention is None:
        on_contention = "retry" if once else "raise"
    if wait is UNSET and on_contention != "wait":
        wait = 0

    def decorate(function: Callable[..., Any]) -> Any:
        _check(function, using)
        argument = LeaseArgument(function, _signature(function, bind))
        task = str(options.get("name") or f"{function.__module__}.{function.__qualname__}")
        guard = lock(
            key_maker(task, unique_on, argument.signature) if name is None else name,
            using=using,
            ttl=ttl,
            wait=wait,
            renew=renew,
            max_hold=max_hold,
            shared=shared,
            limit=limit,
            metadata=metadata,
            reentrant=False if once else UNSET,
        )
        spec = TaskLock(
            lock=guard,
            argument=argument,
            on_contention=on_contention,
            default=default,
            contention_retries=contention_retries,
            countdown=None if countdown is None else check_ttl(countdown, what="countdown"),
            min_hold=None if min_hold is None else check_ttl(min_hold, what="min_hold"),
            once=once,
            queue_ttl=check_ttl(3600 if queue_ttl is None else queue_ttl, what="queue_ttl"),
            on_duplicate=on_duplicate or "existing",
            place=place_of(function),
        )
        given = dict(options)
        if once:
            given["base"] = once_base(given.get("base"))
            given["distlock"] = spec
        make: Any = shared_task if app is None else app.task
        return make(bind=True, **given)(under_lock(function, spec, bind=bind))

    return decorate


def _check(function: Any, using: str) -> None:
    if hasattr(type(function), "_get_current_object") or isinstance(function, Task):
        raise InvalidLockError(
            "locked_task takes the place of @shared_task and @app.task: leave that away and give "
            "its options to locked_task",
            alias=using,
        )
    check_function(function)
    if is_coroutine(function):
        raise InvalidLockError(f"Celery runs no coroutines: {function!r}", alias=using)


def _signature(function: Callable[..., Any], bind: bool) -> inspect.Signature:
    """Return the signature of what is sent: without the ``self`` of a bound task."""
    signature = signature_of(function)
    parameters = list(signature.parameters.values())
    if bind and not parameters:
        raise InvalidLockError(f"{function!r} with bind=True takes the task as first argument")
    return signature.replace(parameters=parameters[1:]) if bind else signature
