"""`override_locks`: locks in memory in the place of the stores, for a block or a test."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from unittest import TestCase

from ..backends.base import BaseLockBackend
from ..backends.locmem import LocMemBackend, _Space
from ..conf import parse
from ..core.durations import Duration, check_wait
from ..core.names import check_name
from ..exceptions import InvalidLockBackendError, LockNotHeldError
from ..handler import locks
from ..transactions import is_pending, sweep
from .alias_overrides import AliasOverride, begin_override, end_override
from .classes import decorate_class
from .elsewhere import call_site, claim_elsewhere
from .memory import ELSEWHERE, MemoryBackend

__all__ = ["override_locks"]

T = TypeVar("T", bound="Callable[..., Any]")

Names = str | Iterable[str]

EVERY = ""  # stands for every alias that is replaced; no name of an alias is empty


@dataclass(frozen=True, slots=True)
class Stage:
    """What one entry of the block has made: an override, with a space and a journal an alias."""

    override: AliasOverride
    spaces: dict[tuple[int, str], _Space] = field(default_factory=dict)
    taken: dict[str, list[str]] = field(default_factory=dict)


class override_locks:
    """Keep the locks in memory for a block or a test: no database, nothing left behind.

    A `with` or `async with` block, or a decorator of functions, async functions and
    `unittest.TestCase` classes (each of whose tests begins again). Every alias of DISTLOCKS, or
    those that ``using`` names, is replaced by a backend in memory that keeps the same contract,
    each with locks of its own. At the end all is as it was, and leases from before live on.

    - ``held``: names that another process holds from the start, under every replaced alias; or a
      dict of aliases to names.
    - ``wait``: no code waits for longer than so many seconds, whatever the code asks for; it gets
      the error of the whole wait. So ``wait=0`` tests a timeout without waiting for it.
    - ``settings``: keys of the alias in DISTLOCKS that hold instead, such as ``TTL=1``. The
      others stay as they are set, but for BACKEND, LOCATION and OPTIONS, which have no meaning
      in memory.

    In the block of another `override_locks` nothing of that one holds.
    """

    def __init__(
        self,
        *,
        using: Names | None = None,
        held: Names | Mapping[str, Names] = (),
        wait: Duration | None = None,
        **settings: Any,
    ) -> None:
        if useless := {"BACKEND", "LOCATION", "OPTIONS"} & set(settings):
            raise TypeError(f"override_locks: {', '.join(sorted(useless))}: no meaning in memory")
        self._using = None if using is None else frozenset(_several(using))
        self._held = {
            alias: [check_name(name) for name in _several(names)]
            for alias, names in (held if isinstance(held, Mapping) else {EVERY: held}).items()
        }
        self._wait = check_wait(wait)
        self._settings = settings
        self._site = call_site()
        self._stages: list[Stage] = []
        self._last: Stage | None = None

    # -- what the block sees -----------------------------------------------------------------------

    def taken(self, *, using: str = "default") -> list[str]:
        """Return the names of the locks that were taken in the block, in order, also after it.

        A lock taken twice is there twice; those of ``held`` and `hold_elsewhere` are not there.
        """
        if self._last is None:
            raise RuntimeError("override_locks: the block was not entered yet")
        return list(self._last.taken.get(using, ()))

    def release(self, name: str, *, using: str = "default") -> None:
        """Have the other process let go of a lock of ``held``.

        Raises LockNotHeldError when no other process holds it.
        """
        backend = locks[using]
        info = backend.inspect(name) if isinstance(backend, MemoryBackend) else None
        if info is None or not info.owner.startswith(ELSEWHERE):
            raise LockNotHeldError("No other holder has it", name=name, alias=using)
        backend.force_release(name, fencing_token=info.fencing_token)

    # -- entering and leaving ----------------------------------------------------------------------

    def enable(self) -> None:
        """Begin; for code that cannot use a block, such as `setUpModule`."""
        self._stages.append(self._begin())

    def disable(self) -> None:
        """End what `enable` began."""
        self._end(self._stages.pop())

    def switch_on(self) -> Callable[[], None]:
        """Begin, and return what ends it."""
        return functools.partial(self._end, self._begin())

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.disable()

    async def __aenter__(self) -> Self:
        self.enable()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.disable()

    def _begin(self) -> Stage:
        stage = Stage(AliasOverride(self._using, lambda alias, raw: self._make(stage, alias, raw)))
        begin_override(stage.override)
        try:
            aliases = list(locks if self._using is None else self._using)
            if strange := set(self._held) - {EVERY, *aliases}:
                names = ", ".join(map(repr, sorted(strange)))
                raise InvalidLockBackendError(f"override_locks: held names {names}, not replaced.")
            for alias in aliases:
                locks[alias]  # made at once: wrong settings are told here
        except BaseException:
            end_override(stage.override)
            raise
        self._last = stage
        return stage

    def _end(self, stage: Stage) -> None:
        if is_pending():
            sweep()  # what was kept until the end of a transaction is freed, not lost
        end_override(stage.override)

    def _make(self, stage: Stage, alias: str, raw: Any) -> BaseLockBackend:
        if isinstance(raw, Mapping):
            raw = {**raw, **self._settings}
        # By the process: a forked child has locks of its own, and finds the same held.
        place = (os.getpid(), alias)
        new = place not in stage.spaces
        backend = MemoryBackend(
            alias,
            parse(alias, raw),
            space=stage.spaces.setdefault(place, _Space()),
            taken=stage.taken.setdefault(alias, []),
            longest_wait=self._wait,
        )
        if new:
            for name in (*self._held.get(EVERY, ()), *self._held.get(alias, ())):
                claim = claim_elsewhere(backend, name, None, self._site)
                LocMemBackend.try_acquire(backend, claim, 0.0)
        return backend

    # -- decorating --------------------------------------------------------------------------------

    def __call__(self, decorated: T) -> T:
        """Decorate a function, an async function or a TestCase class."""
        if isinstance(decorated, type):
            if not issubclass(decorated, TestCase):
                raise TypeError(
                    f"override_locks decorates subclasses of unittest.TestCase, and "
                    f"{decorated.__name__} is none. For a plain class of pytest use "
                    "@pytest.mark.override_locks(...) and the plugin of this package"
                )
            decorate_class(decorated, self)
            return decorated
        if inspect.isgeneratorfunction(decorated) or inspect.isasyncgenfunction(decorated):
            raise TypeError("override_locks cannot decorate a generator: use a block inside it")
        wrapper: Any
        if inspect.iscoroutinefunction(decorated):

            @functools.wraps(decorated)
            async def awrapper(*args: Any, **kwargs: Any) -> Any:
                stage = self._begin()
                try:
                    return await decorated(*args, **kwargs)
                finally:
                    self._end(stage)

            wrapper = awrapper
        else:

            @functools.wraps(decorated)
            def swrapper(*args: Any, **kwargs: Any) -> Any:
                stage = self._begin()
                try:
                    return decorated(*args, **kwargs)
                finally:
                    self._end(stage)

            wrapper = swrapper
        return wrapper  # type: ignore[no-any-return]


def _several(names: Names) -> list[str]:
    """Return names as a list; one str is one name, not its characters."""
    return [names] if isinstance(names, str) else list(names)
