"""`requires_fence`: functions that want a living lease before they begin."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

from asgiref.sync import iscoroutinefunction

from ..current import signature_of
from ..exceptions import InvalidLockError
from ..lease import Lease

__all__ = ["requires_fence"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def requires_fence(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def requires_fence(*, lease: str = "lease") -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def requires_fence(function: Callable[..., Any] | None = None, /, *, lease: str = "lease") -> Any:
    """Decorate a function that writes under the lease which it is given.

    ``lease`` is the name of the parameter. A call raises InvalidLockError when the argument is no
    lease (None, when the lock was not obtained), UnsupportedOperationError when its backend has no
    fencing tokens, and LeaseLostError or LockNotHeldError when it is gone; the function is not
    begun then. It spares useless work and forbids forgetting the lease: what makes the writes safe
    is that they are fenced. Raises InvalidLockError at once for a function without the parameter
    and for generators, whose body would run later.
    """
    if function is None:
        return functools.partial(_decorate, name=lease)
    return _decorate(function, name=lease)


def _decorate(function: Callable[P, R], *, name: str) -> Callable[P, R]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidLockError(
            f"{function!r} is a generator: its body runs after the lease was checked. Decorate "
            "what its body calls"
        )
    signature = signature_of(function)
    if name not in signature.parameters:
        raise InvalidLockError(
            f"{function!r} has no parameter {name!r}: name the one that is given the lease by "
            "@requires_fence(lease=...)"
        )

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments[name]
        if not isinstance(given, Lease):
            raise InvalidLockError(
                f"{function!r} needs a Lease as {name!r}, not {given!r}: was the lock obtained?"
            )
        given._fence()

    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def arun(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(args, kwargs)
            return await cast("Any", function)(*args, **kwargs)

        return cast("Callable[P, R]", arun)

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        return function(*args, **kwargs)

    return run
