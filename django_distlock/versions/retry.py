"""Running a function again that met a conflict: it reads again and applies its change again."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from asgiref.sync import iscoroutinefunction

from ..core.backoff import delays
from ..core.durations import Duration, check_ttl
from ..exceptions import InvalidLockError, StaleVersionError
from ..transactions import Ask, open_transactions

__all__ = ["retry_on_conflict"]

P = ParamSpec("P")
R = TypeVar("R")


def retry_on_conflict(
    times: int = 3, *, longest: Duration = 0.1
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that runs a function up to ``times`` times while it raises a conflict.

    The function, sync or async, reads the rows itself, changes and saves them: what is passed to it
    was read before. Between two runs it sleeps for a short random time, doubled each time up to
    ``longest`` seconds. The last `StaleVersionError` is raised; its ``attempts`` is their count.

    Open `atomic()` inside the function, not around it: a run that failed is undone then, and the
    next one reads what others have committed meanwhile. Inside an open transaction whose reads all
    see one snapshot (any isolation level but READ COMMITTED, except on SQLite) it is not run again.
    """
    _check_times(times)
    seconds = check_ttl(longest, what="longest", longest=60)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidLockError(
                f"{function!r} is a generator: what it has yielded cannot be taken back"
            )
        if iscoroutinefunction(function):

            @functools.wraps(function)
            async def arun(*args: P.args, **kwargs: P.kwargs) -> Any:
                sleeps = delays(0.005, seconds)
                for attempt in range(1, times + 1):
                    try:
                        return await cast("Any", function)(*args, **kwargs)
                    except StaleVersionError as error:
                        error.attempts = attempt
                        see = functools.partial(_sees_the_same, error)
                        if attempt == times or await Ask(see).ado():
                            raise
                    await asyncio.sleep(next(sleeps))
                raise AssertionError  # the last attempt returns or raises

            return cast("Callable[P, R]", arun)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            sleeps = delays(0.005, seconds)
            for attempt in range(1, times + 1):
                try:
                    return function(*args, **kwargs)
                except StaleVersionError as error:
                    error.attempts = attempt
                    if attempt == times or _sees_the_same(error):
                        raise
                time.sleep(next(sleeps))
            raise AssertionError  # the last attempt returns or raises

        return run

    return decorate


def _check_times(times: object) -> None:
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise InvalidLockError(
            f"times is how often the function is run at most, from 1, not {times!r}; the decorator "
            "is written with parentheses: @retry_on_conflict()"
        )


def _sees_the_same(error: StaleVersionError) -> bool:
    """Return whether reading again would be useless, and say so in the error."""
    for block in open_transactions()[0]:
        connection: Any = block.connection
        if connection.alias != error.using or connection.vendor == "sqlite":
            continue  # on SQLite, who has tried to write sees what is there now
        level = getattr(connection, "isolation_level", None)
        level = str(getattr(level, "name", level)).replace("_", " ").lower()
        if level != "read committed":
            error.add_note(
                f"Not run again inside the open atomic() on {connection.alias!r}, where it would "
                f"read the same (isolation level: {level}). Put retry_on_conflict around the "
                "transaction, or use READ COMMITTED"
            )
            return True
    return False
