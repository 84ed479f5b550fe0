"""Responses that are sent piece by piece: the lock is held until the last piece, or the close.

The server tells the end of a response by closing it, also when the client has gone away. A stream
that has come to its end, or has failed, is not kept waiting for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from asgiref.sync import async_to_sync
from django.http import StreamingHttpResponse

from ..core import flow
from ..exceptions import LockBackendError, LockNotHeldError
from ..lease import Lease

__all__ = ["hold_until_sent"]

logger = logging.getLogger("django_distlock")


def hold_until_sent(response: StreamingHttpResponse, lease: Lease, *, strict: bool) -> None:
    """Have ``response`` release the lease when it has been sent, or is closed before.

    When ``strict``, a lost lease ends the stream with LeaseLostError, so that the client sees that
    it is cut off.
    """
    # Django's own view of the iterator makes bytes of the parts, and hides the generator that has
    # to be closed; so this private one (a test for each version of Django watches it).
    parts: Any = response._iterator  # type: ignore[attr-defined]
    kind = AsyncParts if response.is_async else Parts
    response.streaming_content = kind(parts, lease, strict)


class _Holding:
    """The lease's side of a stream."""

    def __init__(self, parts: Any, lease: Lease, strict: bool) -> None:
        self._parts = parts
        self._lease = lease
        self._strict = strict
        self._begun = False
        self._over = False

    def _look(self) -> None:
        """Before each part: still ours, and held by whoever sends it."""
        if self._strict and self._lease.lost:
            self._lease.check()
        # The thread or task of the view may have ended, and for such a holder nothing is renewed.
        if not self._begun or not self._lease._hold.holder_lives():
            self._begun = True
            with suppress(LockNotHeldError):  # released or transferred by the view, on purpose
                self._lease.adopt()

    def _ends(self) -> bool:
        """Return whether it is now that the lease has to be released."""
        over, self._over = self._over, True
        return not over

    def _left(self, error: Exception) -> None:
        """Answer an error of the release after all was sent."""
        if isinstance(error, LockBackendError) or not self._strict:
            logger.error("After a streaming response: %s", error)
            return
        raise error

    def close(self) -> None:
        """Release, if the stream has not come to its end; called when the response is closed."""
        if not self._ends():
            return
        if asyncio._get_running_loop() is not None:
            self._lease._drop()  # a store must not be waited for on the loop's thread
            return
        try:
            self._close_parts()
        finally:
            try:
                flow.run(self._lease._leave(None))
            except (LockNotHeldError, LockBackendError) as error:
                # Django drops what a close raises.
                logger.error("After a streaming response: %s", error)  # noqa: TRY400 - it says all

    def _close_parts(self) -> None:
        """Let the generator behind the parts end before the lock is free."""


class Parts(_Holding):
    """The parts of a response, under a lease. Django closes the generator itself, before us."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            self._look()
            return next(self._parts)
        except StopIteration:
            if self._ends():
                self._release(None)
            raise
        except BaseException as error:
            if self._ends():
                self._release(error)
            raise

    def _release(self, error: BaseException | None) -> None:
        try:
            flow.run(self._lease._leave(error))
        except (LockNotHeldError, LockBackendError) as ours:
            self._left(ours)


class AsyncParts(_Holding):
    """The same of an asynchronous response."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            self._look()
            return await anext(self._parts)
        except StopAsyncIteration:
            if self._ends():
                await self._release(None)
            raise
        except GeneratorExit:
            self.close()
            raise
        except BaseException as error:
            if self._ends():
                await self._release(error)
            raise

    async def _release(self, error: BaseException | None) -> None:
        try:
            await flow.arun(self._lease._leave(error))
        except (LockNotHeldError, LockBackendError) as ours:
            self._left(ours)

    def _close_parts(self) -> None:
        # Nobody else does before the garbage collector comes, and the lock would be free first.
        async def aclose() -> None:
            await self._parts.aclose()

        if hasattr(self._parts, "aclose"):
            async_to_sync(aclose)()
