"""Standing between the package and a real store: seeing, delaying or losing what is said.

Nothing here replaces a store. A tapped primitive is still carried out; what happens before and
after it is the test's.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

from ..backends.base import BaseLockBackend
from ..core.loops import finish
from .runners import until

__all__ = ["Calls", "Gate", "failing", "tap", "untouchable"]

PRIMITIVES = (
    "try_acquire",
    "try_acquire_many",
    "renew",
    "renew_many",
    "release",
    "release_many",
    "inspect",
    "scan",
)


class Calls:
    """How often a tapped primitive was begun and how often it was answered."""

    def __init__(self) -> None:
        self.begun = 0
        self.answered = 0
        self.last = 0.0  # when it was last begun, by time.monotonic()
        self.args: tuple[Any, ...] = ()  # what it was last called with

    def begin(self, args: tuple[Any, ...]) -> None:
        """Note that the primitive is called."""
        self.begun += 1
        self.args = args
        self.last = time.monotonic()

    async def came(self, number: int = 1) -> None:
        """Wait until the store has answered so many."""
        await until(lambda: self.answered >= number)


class Gate:
    """Stops whoever comes to it, until it is opened."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        if not self._opened.wait(10):
            raise AssertionError("the gate was not opened")

    def reached(self) -> bool:
        """Return whether a call stands before it or came through."""
        return self._reached.is_set()

    def open(self) -> None:
        """Let everybody through."""
        self._opened.set()


def _nothing() -> None:
    pass


@contextmanager
def tap(
    backend: BaseLockBackend,
    verb: str,
    *,
    before: Callable[[], None] = _nothing,
    after: Callable[[], None] = _nothing,
    of: str | None = None,
) -> Iterator[Calls]:
    """Call ``before`` and ``after`` around each call of a primitive; what they raise, it raises.

    With ``of``, the name of a lock, only those that concern it: releases in the background, of what
    an earlier test abandoned, come at any time.
    """
    calls = Calls()
    real = getattr(backend, verb)
    # An async twin may come back to the primitive itself: that is one call all the same.
    inside: ContextVar[bool] = ContextVar("inside", default=False)

    def concerns(args: tuple[Any, ...]) -> bool:
        if of is None or not args:
            return of is None
        given = args[0] if isinstance(args[0], list) else [args[0]]
        return of in [getattr(each, "name", each) for each in given]

    def tapped(*args: Any) -> Any:
        if inside.get() or not concerns(args):
            return real(*args)
        calls.begin(args)
        before()
        answer = real(*args)
        after()
        calls.answered += 1
        return answer

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(backend, verb, tapped))
        if (twin := getattr(backend, f"a{verb}", None)) is not None:

            async def stopped(*args: Any) -> Any:
                calls.begin(args)
                await asyncio.to_thread(before)
                token = inside.set(True)
                try:
                    answer = await twin(*args)
                finally:
                    inside.reset(token)
                await asyncio.to_thread(after)
                calls.answered += 1
                return answer

            async def atapped(*args: Any) -> Any:
                # To its end, which some stores see to by themselves.
                return await (finish(stopped(*args)) if concerns(args) else twin(*args))

            stack.enter_context(mock.patch.object(backend, f"a{verb}", atapped))
        yield calls


@contextmanager
def failing(
    backend: BaseLockBackend,
    *verbs: str,
    answered: bool = False,
    times: int | None = None,
    conflict: bool = False,
    of: str | None = None,
) -> Iterator[None]:
    """Let primitives fail by an error of the store: for good, or the first ``times`` of each.

    With ``of``, the name of a lock, only those that concern it. With ``answered`` the store carries
    the call out and only its answer is lost on the way. ``conflict`` makes the error one that asks
    for another try.
    """
    kinds = backend.store_errors or (OSError,)
    error = kinds[0]("the connection to the store was cut")
    real_judge = backend.is_conflict

    def failure() -> Callable[[], None]:
        left = [times if times is not None else -1]

        def fail() -> None:
            if left[0]:
                left[0] -= 1
                raise error

        return fail

    def judge(given: Exception) -> bool:
        return conflict if given is error else real_judge(given)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(backend, "store_errors", kinds))
        stack.enter_context(mock.patch.object(backend, "is_conflict", judge))
        stack.enter_context(mock.patch.object(backend, "is_passing", return_value=False))
        for verb in verbs:
            where = {"after" if answered else "before": failure()}
            stack.enter_context(tap(backend, verb, of=of, **where))
        yield


@contextmanager
def untouchable(backend: BaseLockBackend) -> Iterator[None]:
    """Fail when the store is asked for anything at all."""

    def touched() -> None:
        raise AssertionError("the store was touched")

    with ExitStack() as stack:
        for verb in PRIMITIVES:
            stack.enter_context(tap(backend, verb, before=touched))
        yield
