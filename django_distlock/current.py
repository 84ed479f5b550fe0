"""The lease under which a decorated function runs: asked for by its code, or an argument of it."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import UnionType
from typing import Annotated, Any, Final, ForwardRef, Union, get_args, get_origin

from .exceptions import InvalidLockError, LockNotHeldError
from .lease import Lease

__all__ = ["LeaseArgument", "current_lease", "running_under", "signature_of"]

# From 3.14 on an annotation is looked up when it is asked for, and what is imported for type
# checkers only is not found then: it is left as a text, as all of them are before 3.14.
if sys.version_info >= (3, 14):
    from annotationlib import Format

    signature_of = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
else:
    signature_of = inspect.signature

_current: ContextVar[tuple[Lease, ...]] = ContextVar("django_distlock_current", default=())


def current_lease(name: str | None = None) -> Lease:
    """Return the lease under which a decorator runs the calling code: for `check`, or its token.

    The decorators are those of `lock`, `lock_all` and `lock_for`, `locked_view`, `locked_task` and
    `locked_command`. ``name`` is that of the lock, where there are several; left out, it is the
    lease of the innermost decorator, and of a group the last one. Raises LockNotHeldError where
    there is none.
    """
    for lease in reversed(_current.get()):
        if name is None or lease.name == name:
            return lease
    of = "" if name is None else f" of lock {name!r:.200}"
    raise LockNotHeldError(
        f"No lease{of} is current: the code runs in no function decorated by @lock(...), "
        "locked_view, locked_task or locked_command. In a 'with' block use its 'as'",
        name=name,
    )


@contextmanager
def running_under(leases: Sequence[Lease]) -> Iterator[None]:
    """Make leases the current ones for a block, the last of them first."""
    token = _current.set((*_current.get(), *leases))
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that another context closes, as a loop's end does
            _current.reset(token)


class LeaseArgument:
    """The parameter of a function that is annotated `Lease`, which its decorator fills.

    Or that has no annotation, and is ``called`` so.
    ``signature``, that of ``function`` unless given, is what is left for the callers. Annotations
    that are text are looked up where the function was defined. Raises InvalidLockError for a
    parameter that cannot be filled by its name, and for a `Lease` that is not known there.
    """

    __slots__ = ("_index", "_name", "signature")

    def __init__(
        self,
        function: Callable[..., Any],
        signature: inspect.Signature | None = None,
        *,
        called: str | None = None,
    ) -> None:
        signature = signature or signature_of(function)
        parameters = list(signature.parameters.values())
        wanted = [
            each
            for each in parameters
            if _is_lease(each.annotation, function)
            or (each.name == called and each.annotation is each.empty)
        ]
        self.signature = signature
        self._name = wanted[0].name if wanted else None
        self._index = len(parameters)  # of a keyword-only one: never among the positional ones
        if not wanted:
            return
        [first, *others] = wanted
        if others or first.kind not in (first.POSITIONAL_OR_KEYWORD, first.KEYWORD_ONLY):
            raise InvalidLockError(
                f"One parameter of a function may be annotated Lease, and has to have a name that "
                f"can be passed; not {', '.join(map(str, wanted))}"
            )
        if first.kind is first.POSITIONAL_OR_KEYWORD:
            self._index = parameters.index(first)
        parameters.remove(first)
        self.signature = signature.replace(parameters=parameters)

    def __bool__(self) -> bool:
        return self._name is not None

    def filled(
        self, leases: Sequence[Lease | None], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with the lease among them, the only one of ``leases``."""
        if self._name is None:
            return args, kwargs
        [lease] = leases
        if len(args) > self._index:
            return (*args[: self._index], lease, *args[self._index :]), kwargs
        return args, {**kwargs, self._name: lease}

    def hidden_from(self, wrapper: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``wrapper``, which shows what is left for its callers."""
        if self:
            wrapper.__signature__ = self.signature  # type: ignore[attr-defined]
        return wrapper


_UNION: Final = re.compile(r"(?:\w+\.)*(?:Optional|Union|Annotated)\[(.+)\]")
_WITHIN: Final = re.compile(r"\[[^][]*\]")
_AROUND: Final = " '\""


def _is_lease(annotation: object, function: Callable[..., Any]) -> bool:
    """Return whether an annotation is our `Lease`, or that or None; users may have a Lease too."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        union = get_origin(annotation) in (Union, UnionType, Annotated)
        return Lease in (get_args(annotation) if union else (annotation,))
    text = annotation.strip(_AROUND)
    if found := _UNION.fullmatch(text):
        text = found[1]
    while _WITHIN.search(text):  # what is in brackets is of a list of leases, say
        text = _WITHIN.sub("", text)
    names = _globals_of(function)
    paths = [part.strip(_AROUND).split(".") for part in re.split("[|,]", text)]
    for path in paths:
        if path[-1] == Lease.__name__ and path[0] not in names:
            # A linter moves imports there that only annotations need: it would not be filled.
            raise InvalidLockError(
                f"{path[0]!r} is not known in the module of {function!r}, so it cannot be told "
                "whether a parameter is to be given the lease: import it there when the program "
                "runs, too, not under TYPE_CHECKING only or in a function"
            )
    return any(_found(path, names) is Lease for path in paths)


def _found(path: Sequence[str], names: Mapping[str, Any]) -> object:
    found = names.get(path[0])
    for name in path[1:]:
        found = getattr(found, name, None)
    return found


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the names of the module that defines a function, or an object that is called."""
    each: Any = inspect.unwrap(function)
    while isinstance(each, functools.partial):
        each = inspect.unwrap(each.func)
    if not hasattr(each, "__globals__"):
        each = getattr(type(each), "__call__", None)  # noqa: B004 - the method itself
    names: Mapping[str, Any] = getattr(each, "__globals__", {})
    return names
