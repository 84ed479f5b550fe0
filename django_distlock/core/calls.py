"""Calling a store's primitives: the one border at which the errors of a store become ours."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ClassVar, TypeVar

from asgiref.sync import sync_to_async

from ..exceptions import LockBackendError, StoreConflictError, StoreUnavailableError
from .loops import finish, to_the_end
from .text import shown

__all__ = ["Calls"]

T = TypeVar("T")

_DOING = {
    "try_acquire": "acquiring",
    "try_acquire_many": "acquiring",
    "queue": "waiting",
    "renew": "renewing",
    "renew_many": "renewing",
    "release": "releasing",
    "release_many": "releasing",
    "inspect": "inspecting",
    "holders": "inspecting",
    "scan": "listing locks",
    "clean_batch": "cleaning",
}


class Calls:
    """What calls the primitives of a store, in either mode."""

    alias: str
    store_errors: tuple[type[Exception], ...] = ()
    thread_sensitive: ClassVar[bool]
    never_blocks: ClassVar[bool] = False
    # Whether the async primitives end by themselves what they began, also when cancelled.
    uncancellable: ClassVar[bool] = False
    _executor: ThreadPoolExecutor | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # What a store in memory says of itself need not hold for a class derived from it.
        cls.never_blocks = cls.__dict__.get("never_blocks", False)

    def is_conflict(self, error: Exception) -> bool:
        """Return whether the store asks to try again: a deadlock, a serialization failure."""
        return False

    def is_passing(self, error: Exception) -> bool:
        """Return whether another server may answer in a moment: one is restarted, or takes over."""
        return False

    def remedy(self, error: Exception) -> str:
        """Return what to do about an error of the store."""
        return "Look at the store and its log"

    def call(self, verb: str, *args: Any, name: str | None = None) -> Any:
        """Call a primitive; the store's errors become LockBackendError."""
        try:
            return getattr(self, verb)(*args)
        except self.store_errors as error:
            raise self._failure(verb, error, name) from error

    async def acall(
        self, verb: str, *args: Any, name: str | None = None, to_the_end: bool = True
    ) -> Any:
        """Call a primitive's async twin, or the primitive itself off the event loop.

        A cancellation waits for its end, unless ``to_the_end`` is False: else the store could grant
        a lock after it was given up.
        """
        twin = getattr(self, f"a{verb}", None)
        if twin is None:
            if self.never_blocks:
                return self.call(verb, *args, name=name)
            return await self.off_loop(functools.partial(self.call, verb, *args, name=name))
        try:
            work = twin(*args)
            return await (finish(work) if to_the_end and not self.uncancellable else work)
        except self.store_errors as error:
            raise self._failure(verb, error, name) from error

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run ``work`` on a thread that may block.

        Stores on Django's database take the thread-sensitive one, else the transaction of a
        `TestCase` would not be seen; others a small pool of the alias's own, because asyncio's
        default executor is the user's, and waiters would fill it.
        """
        return await to_the_end(work, self._start)

    def _start(self, work: Callable[[], None]) -> asyncio.Future[None]:
        if self.thread_sensitive:
            return asyncio.ensure_future(sync_to_async(work, thread_sensitive=True)())
        if self._executor is None:
            self._executor = ThreadPoolExecutor(4, thread_name_prefix=f"distlock-{self.alias}")
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, copy_context().run, work)

    def _failure(self, verb: str, error: Exception, name: str | None) -> LockBackendError:
        kind = LockBackendError
        if self.is_conflict(error):
            kind = StoreConflictError
        elif self.is_passing(error):
            kind = StoreUnavailableError
        doing = _DOING.get(verb, f"calling {verb}()")
        said = shown(str(error).strip().rstrip(".") or repr(error), 500)
        said += "" if said.endswith(("?", "!")) else "."
        return kind(
            f"Lock store error while {doing}: {type(error).__name__}: {said} {self.remedy(error)}",
            name=name,
            alias=self.alias,
        )

    def close(self) -> None:
        """Close what the process has open. The backend is not used afterwards."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None

    def forget_parent(self) -> None:
        """Drop, in a forked child, what belongs to the parent, without closing it."""
        self._executor = None
