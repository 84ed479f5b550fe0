"""Options of `locked_task` that would do nothing, or are meant for something else: refused."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from celery.app.task import Task

from ...exceptions import InvalidLockError
from .spec import Once, OnContention

__all__ = ["check_options"]

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
