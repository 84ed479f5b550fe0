"""Leaders: of all processes that campaign one leads, and another one when it is gone."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

from .core.backoff import Backoff
from .core.blocks import Guard
from .core.durations import UNSET, Duration, Unset, Wait, check_ttl
from .core.flow import Flow
from .core.values import LockInfo
from .current import signature_of
from .decorators import Name, arguments_of, is_coroutine, refuse_bare
from .exceptions import LeaseLostError, LockBackendError
from .lease import Lease
from .lock import Lock

__all__ = ["RETRIES", "Leader", "leader"]

logger = logging.getLogger("django_distlock")

P = ParamSpec("P")
R = TypeVar("R")

RETRIES = Backoff(0.5, 15.0)
"""The seconds between two questions to a store that failed."""


@dataclass(slots=True)
class _Sleep:
    """Sleep, in this thread or on the event loop."""

    interruptible: ClassVar[bool] = True

    seconds: float

    def do(self) -> None:
        time.sleep(self.seconds)

    async def ado(self) -> None:
        await asyncio.sleep(self.seconds)


class _Campaign(Lock):
    """The lock of a leader: waited for without limit, also while the store is down."""

    _lease_called = "lease"

    def _obtain(self, wait: Wait, owner: str | None = None) -> Flow[Lease]:
        sleeps = iter(RETRIES)
        while True:
            try:
                return (yield from super()._obtain(None, owner))
            except LockBackendError as error:
                logger.warning("The campaign goes on: %s", error)
            yield _Sleep(next(sleeps))

    # By the flow above, not by a Lock's one plain call.
    _obtain_now = Guard._obtain_now
    _aobtain_now = Guard._aobtain_now


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, of all processes that campaign under a name: a plain value, as `Lock` is.

    Made by `leader`. ``lock`` is the lock that the leader holds.
    """

    lock: Lock

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function``, sync or async, which campaigns when called, and runs as the leader.

        Each call waits until its process leads, also while the store is down. When the leadership
        is lost, an async function is cancelled; a sync one learns of it by ``lease.check()``,
        ``lease.lost`` or ``lease.on_lost``. The call then campaigns again, and runs the function
        once more. When the function returns, or raises another error, so does the call, and the
        leadership is passed on. A parameter called ``lease``, or annotated `Lease`, is given the
        lease, and the function is called without it.
        """
        if isinstance(function, staticmethod):
            return cast("Callable[P, R]", staticmethod(self(function.__func__)))
        elected: Any = replace(self.lock, cancel_on_lost=is_coroutine(function))(function)
        if is_coroutine(function):

            @functools.wraps(elected)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                while True:
                    try:
                        return await elected(*args, **kwargs)
                    except LeaseLostError as error:
                        if not self._is_about_us(error, elected, args, kwargs):
                            raise

            return cast("Callable[P, R]", arun)

        @functools.wraps(elected)
        def run(*args: Any, **kwargs: Any) -> Any:
            while True:
                try:
                    return elected(*args, **kwargs)
                except LeaseLostError as error:
                    if not self._is_about_us(error, elected, args, kwargs):
                        raise

        return cast("Callable[P, R]", run)

    def _is_about_us(
        self,
        error: LeaseLostError,
        elected: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> bool:
        """Return whether an error says that the leadership was lost, and not another lock."""
        arguments = arguments_of(signature_of(elected), args, kwargs)
        ours = (error.alias, error.name) == (self.lock.using, self.lock._bound_to(arguments).name)
        if ours:
            logger.warning("The leadership was lost, the campaign begins again: %s", error)
        return ours

    def current(self) -> LockInfo | None:
        """Return who leads now, as `Lock.info`; None when no process does.

        It may have changed when you read this. Raises LockBackendError when the store fails.
        """
        return self.lock.info()

    async def acurrent(self) -> LockInfo | None:
        """Return as `current`."""
        return await self.lock.ainfo()

    def observe(self, *, every: Duration = 1.0) -> Iterator[LockInfo | None]:
        """Yield who leads now, and from then on each change that is seen, without end.

        None: no process leads. The store is asked every ``every`` seconds (from 0.01) or timedelta.
        Each leader that is yielded did lead; one that led only between two questions is missed.
        Raises LockBackendError when the store fails; call it again then.
        """
        seconds = check_ttl(every, what="every", alias=self.lock.using)
        before: Hashable = UNSET
        while True:
            info = self.current()
            if (now := _grant_of(info)) != before:
                before = now
                yield info
            time.sleep(seconds)

    async def aobserve(self, *, every: Duration = 1.0) -> AsyncGenerator[LockInfo | None, None]:
        """Yield as `observe`."""
        seconds = check_ttl(every, what="every", alias=self.lock.using)
        before: Hashable = UNSET
        while True:
            info = await self.acurrent()
            if (now := _grant_of(info)) != before:
                before = now
                yield info
            await asyncio.sleep(seconds)


def _grant_of(info: LockInfo | None) -> Hashable:
    """Return what tells the grants of a lock apart."""
    return None if info is None else (info.fencing_token, info.owner)


def leader(
    name: Name,
    *,
    using: str = "default",
    ttl: Duration | Unset = UNSET,
    metadata: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> Leader:
    """Return a leader, to be used as a decorator, by ``current()`` or by ``observe()``.

    ``name`` and the other options are those of `lock`. ``ttl`` is the time after which another
    process leads when the leader has crashed, or is cut off from the store. Raises InvalidLockError
    when out of range.
    """
    if callable(name):
        refuse_bare("leader", name)
    return Leader(
        _Campaign(
            name=name,
            using=using,
            ttl=ttl,
            wait=None,
            renew=True,
            metadata=metadata,
            label=label,
        )
    )
