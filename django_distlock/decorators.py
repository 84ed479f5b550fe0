"""Locks as decorators: names from the bound arguments, and what to do on contention."""

from __future__ import annotations

import functools
import inspect
import re
import string
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, ParamSpec, TypeAlias, TypeVar, cast

from asgiref.sync import iscoroutinefunction

from .current import LeaseArgument, running_under
from .exceptions import InvalidLockError, LockNotAcquiredError

__all__ = [
    "Contention",
    "Decorates",
    "Name",
    "arguments_of",
    "check_contention",
    "check_fields",
    "check_filled",
    "check_function",
    "done",
    "fill",
    "is_coroutine",
    "refuse_bare",
]

P = ParamSpec("P")
R = TypeVar("R")

Contention: TypeAlias = "Literal['raise', 'skip'] | Callable[..., Any]"
Name: TypeAlias = "str | Callable[..., str]"


def fill(name: Name, arguments: Mapping[str, Any], alias: str) -> str:
    """Return ``name`` filled from the arguments of a call, before the store is touched.

    Raises InvalidLockError when a field cannot be filled, when it is filled with a value whose text
    does not name it, and when a callable returns no name.
    """
    if callable(name):
        made: object = name(**arguments)
        if not isinstance(made, str) or not made:
            raise InvalidLockError(f"The name's callable returned {made!r}, no name", alias=alias)
        return made
    try:
        return _Filler(name, alias).vformat(name, (), arguments)
    except InvalidLockError:
        raise
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        raise InvalidLockError(
            f"The call's arguments do not fill the template {name!r}: {error!r}",
            name=name,
            alias=alias,
        ) from error


class _Filler(string.Formatter):
    """Fills templates, and refuses values whose text is not the same in every process.

    Such a name would be another lock in each process, or one for all that have no key yet.
    """

    def __init__(self, template: str, alias: str) -> None:
        self._template = template
        self._alias = alias

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is None and (why := _why_no_text(value)):
            raise InvalidLockError(
                f"The template {self._template!r} is filled with {value!r:.200}, {why}. "
                "Name an attribute such as '{order.pk}', or write '!s' to use its text anyway",
                name=self._template,
                alias=self._alias,
            )
        return super().convert_field(value, conversion)


def _why_no_text(value: object) -> str | None:
    """Return why the text of a value does not name it, or None."""
    if isinstance(value, str | int):
        return None
    if value is None:
        return "which is no value"
    if hasattr(value, "_meta") and getattr(value, "pk", value) is None:  # a model of Django's
        return "which is not saved"
    if isinstance(value, type) or _ADDRESS.search(format(value)):
        return "whose text is not the same in every process"
    return None


# What Python writes of objects, functions and generators without a text of their own.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")


class Decorates:
    """Makes a guard usable as ``@lock("report:{tenant}")``; nothing is kept on the decorator."""

    __slots__ = ()

    # Declared for the type checker; the guards define them.
    using: str
    on_contention: Contention
    default: Any

    _lease_called: ClassVar[str | None] = None
    """The name of a parameter that is given the lease though it is not annotated."""

    @abstractmethod
    def _names(self) -> list[Name]:
        """Return the names, which may be templates or callables."""

    @abstractmethod
    def _bound_to(self, arguments: Mapping[str, Any]) -> Any:
        """Return the guard with its names filled from the arguments of a call."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function``, sync or async, run under the lock; its signature is kept.

        But for a parameter that is annotated `Lease`, or ``Lease | None``: it is given the lease,
        which `current_lease` returns too. Raises InvalidLockError for a template field that is no
        parameter, and for generators, whose body would run after the lock was freed.
        """
        if isinstance(function, staticmethod):
            return cast("Callable[P, R]", staticmethod(self(function.__func__)))
        self._check(function)
        argument = LeaseArgument(function, called=self._lease_called)
        if argument and len(self._names()) != 1:
            raise InvalidLockError(
                f"{function!r} has a parameter for the lease, and the decorator has several: use "
                "current_lease(name) for one of them",
                alias=self.using,
            )
        signature = argument.signature
        for name in self._names():
            check_fields(name, signature, self.using)

        def guard(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return self._bound_to(arguments_of(signature, args, kwargs))

        if is_coroutine(function):

            @functools.wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                bound = guard(args, kwargs)
                try:
                    got = await bound.__aenter__()
                except LockNotAcquiredError as error:
                    if self.on_contention == "raise":
                        raise
                    answer = self._instead(error, args, kwargs)
                    return await answer if inspect.isawaitable(answer) else answer
                leases = got if isinstance(got, tuple) else (got,)
                async with _entered(bound, got):
                    with running_under(leases):
                        args, kwargs = argument.filled(leases, args, kwargs)
                        return await cast("Any", function)(*args, **kwargs)

            return cast("Callable[P, R]", argument.hidden_from(arun))

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            bound = guard(args, kwargs)
            try:
                got = bound.__enter__()
            except LockNotAcquiredError as error:
                if self.on_contention == "raise":
                    raise
                return self._instead(error, args, kwargs)
            leases = got if isinstance(got, tuple) else (got,)
            with _entered(bound, got), running_under(leases):
                args, kwargs = argument.filled(leases, args, kwargs)
                return done(cast("Any", function)(*args, **kwargs), function)

        return cast("Callable[P, R]", argument.hidden_from(run))

    def _check(self, function: Callable[..., Any]) -> None:
        """Raise InvalidLockError for what cannot be run under this guard."""
        check_function(function)

    def _refuse_contention(self) -> None:
        """Raise InvalidLockError for options that only a decorator heeds."""
        if self.on_contention != "raise" or self.default is not None:
            raise InvalidLockError(
                "on_contention and default are for decorators. 'with' raises LockNotAcquiredError, "
                "and acquire() returns None",
                alias=self.using,
            )

    def _instead(
        self, error: LockNotAcquiredError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a call gives that did not obtain the lock."""
        if callable(self.on_contention):
            return self.on_contention(error, *args, **kwargs)
        return self.default


def check_contention(value: object, name: str | None = None, alias: str | None = None) -> None:
    """Raise InvalidLockError unless ``value`` says what to do on contention."""
    if not callable(value) and value not in ("raise", "skip"):
        raise InvalidLockError(
            f"on_contention is 'raise', 'skip' or a callable, not {value!r}", name=name, alias=alias
        )


def _kinds(function: Any) -> tuple[Any, Any]:
    """Return what says of which kind a function is: of an object that is called, its __call__."""
    return function, getattr(function, "__call__", None)  # noqa: B004 - the method itself


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Return whether calling ``function`` gives a coroutine."""
    return any(iscoroutinefunction(kind) for kind in _kinds(function))


def check_function(function: Any) -> None:
    """Raise InvalidLockError for what cannot be run under a lock."""
    if isinstance(function, type) or not callable(function):
        raise InvalidLockError(f"Only functions are decorated, not {function!r}")
    kinds = _kinds(function)
    if any(inspect.isgeneratorfunction(k) or inspect.isasyncgenfunction(k) for k in kinds):
        raise InvalidLockError(
            f"{function!r} is a generator: its body runs after the call has returned and the "
            "lock is free. Use 'with lock(...)' inside it"
        )


def arguments_of(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by their names, with defaults; what `fill` fills from."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments = arguments.pop(parameter.name) | arguments
    return arguments


def done(result: R, function: Callable[..., Any]) -> R:
    """Return ``result``, unless the work behind it is still to be done: without the lock then."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        raise InvalidLockError(
            f"{function!r} returned a coroutine or generator, whose body would run after the lock "
            "is free: decorate the function that has the body"
        )
    return result


class _entered:
    """The rest of a guard's block, once entered: so that only entering counts as contention."""

    def __init__(self, guard: Any, got: Any) -> None:
        self._guard = guard
        self._got = got

    def __enter__(self) -> Any:
        return self._got

    def __exit__(self, *error: Any) -> None:
        self._guard.__exit__(*error)

    async def __aenter__(self) -> Any:
        return self._got

    async def __aexit__(self, *error: Any) -> None:
        await self._guard.__aexit__(*error)


def check_filled(name: str, alias: str) -> None:
    """Raise InvalidLockError for a template where there are no arguments that would fill it.

    Braces around anything but a Python name, as in JSON, make no template.
    """
    try:
        fields = _fields_of(name)
    except ValueError:
        return
    if unfilled := next(filter(str.isidentifier, fields), None):
        raise InvalidLockError(
            f"The name {name!r:.200} has the field {unfilled!r}, which only a decorator fills "
            "from the arguments of a call. For a value of here, write an f-string",
            name=name,
            alias=alias,
        )


def _fields_of(template: str) -> list[str]:
    """Return the variables of a template. Raises ValueError for one that cannot be read."""
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    return [field.split(".")[0].split("[")[0] for field in fields]


def check_fields(
    name: Name, signature: inspect.Signature, alias: str, also: tuple[str, ...] = ()
) -> Sequence[str]:
    """Return the variables of a template. Raises InvalidLockError for one that no call can fill.

    ``also`` are names that are there beside the parameters.
    """
    if callable(name):
        return ()
    try:
        fields = _fields_of(name)
    except ValueError as error:
        raise InvalidLockError(
            f"{name!r} is no template ({error}); write literal braces twice", name=name, alias=alias
        ) from error
    if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()):
        return fields  # which arguments there are is told by each call
    for first in fields:
        if first not in signature.parameters and first not in also:
            known = ", ".join({**dict.fromkeys(also), **signature.parameters}) or "none"
            raise InvalidLockError(
                f"The template {name!r} names {first!r}, which is no parameter of the function. "
                f"Parameters: {known}",
                name=name,
                alias=alias,
            )
    return fields


def refuse_bare(decorator: str, given: object) -> None:
    """Raise InvalidLockError for ``@decorator`` without the parentheses and the name.

    It is told by the line that calls the decorator, which is one of the function's own then.
    """
    code = getattr(given, "__code__", None)
    if code is None or code.co_name == "<lambda>":
        return
    caller = sys._getframe(2)
    last = max((line for _, _, line in code.co_lines() if line is not None), default=0)
    if code.co_filename == caller.f_code.co_filename and (
        code.co_firstlineno <= caller.f_lineno <= last
    ):
        raise InvalidLockError(
            f"@{decorator} needs the name of the lock: write @{decorator}('a name') above "
            f"{code.co_name}()"
        )
