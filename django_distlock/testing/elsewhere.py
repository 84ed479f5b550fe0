"""`hold_elsewhere`: another process holds a lock while a block of a test runs."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from ..backends.base import BaseLockBackend
from ..core import flow
from ..core.acquisition import check_kind
from ..core.durations import Duration, check_ttl
from ..core.flow import Flow, Granted
from ..core.names import check_name
from ..core.values import Claim, Holder, HolderInfo
from ..core.watchdog import abandon
from ..exceptions import LockNotAcquiredError
from ..handler import locks
from ..lock import check_mode
from .memory import ELSEWHERE, RENEWED, MemoryBackend

__all__ = ["call_site", "claim_elsewhere", "hold_elsewhere"]

TTL = 3600.0  # seconds: longer than any block of a test, for in a real store nobody renews it
_HERE = str(Path(__file__).parent) + os.sep


class hold_elsewhere:
    """Have another process hold a lock while the block runs, which is a `with` or an `async with`.

    To the locks it is another process: the code under test gets LockNotAcquiredError or waits in
    vain, in whatever thread or task it runs, and never meets its own hold. Works on every
    backend; in a `TestCase` the lock is taken on the test's own connection, so that the code
    under test sees it and the rollback takes it away. ``release()`` lets go before the block's
    end. With ``shared`` or ``limit`` it is held as `lock` holds it by these; ``slot`` is then its
    slot. With ``ttl`` it is not renewed, as if the other process had crashed, and it expires after
    so many seconds. Else it lasts: under `override_locks` it is renewed as that of a living
    process, in a real store it has a ttl of an hour. Raises LockNotAcquiredError when the lock is
    held already.
    """

    def __init__(
        self,
        name: str,
        *,
        using: str = "default",
        ttl: Duration | None = None,
        shared: bool = False,
        limit: int | None = None,
    ) -> None:
        self.name = check_name(name, using)
        check_mode(shared, limit, name, using)
        self._mode = shared, limit or 0
        self.alias = using
        self._ttl = ttl if ttl is None else check_ttl(ttl, name=name, alias=using)
        self._site = call_site()
        self._taken: tuple[BaseLockBackend, Claim] | None = None
        self.fencing_token = 0
        self.slot: int | None = None

    def release(self) -> None:
        """Let go of the lock now; at the block's end there is nothing left to do."""
        flow.run(self._release())

    async def arelease(self) -> None:
        """Let go as `release`."""
        await flow.arun(self._release())

    def __enter__(self) -> Self:
        return flow.run(self._take())

    async def __aenter__(self) -> Self:
        return await flow.arun(self._take())

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        flow.run(self._leave(exc))

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await flow.arun(self._leave(exc))

    def _take(self) -> Flow[Self]:
        backend = locks[self.alias]
        shared, limit = self._mode
        check_kind(backend, self.name, shared=shared, limited=limit > 0)
        claim = claim_elsewhere(backend, self.name, self._ttl, self._site, shared, limit)
        place = backend.place()
        answer = yield from flow.acquire(
            backend,
            claim,
            until=backend.clock(),
            clock=backend.clock,
            delays=backend.backoff,
            abandon=lambda claim: abandon(backend, claim, place),
        )
        if not isinstance(answer, Granted):
            by = f" by {HolderInfo.loads(answer.note).holder}" if answer.note else ""
            raise LockNotAcquiredError(
                f"hold_elsewhere: it is held already{by}", name=self.name, alias=self.alias
            )
        self._taken = backend, claim
        self.fencing_token, self.slot = answer.fencing_token, answer.slot
        return self

    def _release(self) -> Flow[None]:
        if self._taken is not None:
            backend, claim = self._taken
            # False means that it expired, was forced, or went with a transaction: gone anyway.
            yield from flow.insist(backend, "release", claim)
            self._taken = None

    def _leave(self, body_error: BaseException | None) -> Flow[None]:
        try:
            yield from self._release()
        except Exception as error:
            if body_error is None:
                raise
            body_error.add_note(f"hold_elsewhere could not release {self.name!r}: {error}")


def claim_elsewhere(
    backend: BaseLockBackend,
    name: str,
    ttl: float | None,
    site: str,
    shared: bool = False,
    limit: int = 0,
) -> Claim:
    """Return the claim of a holder outside of this process."""
    holder = Holder(host="elsewhere", pid=os.getpid(), thread="held for a test", site=site)
    owner = (RENEWED if ttl is None else ELSEWHERE) + secrets.token_hex(7)
    if ttl is None:
        in_memory = isinstance(backend, MemoryBackend)
        ttl = backend.conf.ttl if in_memory else min(TTL, backend.longest_ttl)
    note = HolderInfo(holder, shared=shared, limit=limit or None).dumps()
    return Claim(name, backend.key(name), owner, ttl, note, shared=shared, limit=limit)


def call_site() -> str:
    """Return file:line of the nearest caller outside the kit."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
