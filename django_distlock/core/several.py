"""Acquiring several locks, in the order given: in few round trips, where their store can.

Most locks are free, so the store is asked for many by one question; each acquisition then goes on
from its own answer, as from a plain call. Where one of them is held, those behind it are given back
before it is waited for: whoever waits holds only what comes before it, or two groups could wait for
each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import takewhile

from ..exceptions import LockBackendError, StoreConflictError, StoreUnavailableError
from ..lease import Lease
from . import flow
from .acquisition import Acquisition
from .flow import Attempt, Call, Flow
from .values import Grant

__all__ = ["acquire_some"]

EACH = 0.02  # seconds that a store may take for each, beside those for one


def acquire_some(asked: Sequence[Acquisition], got: list[Lease]) -> Flow[None]:
    """Acquire the first, waiting for it, and as many of the others as are free; add the leases.

    All are of one backend. Raises what the first one raises that fails, and then only the leases
    that were added are left to be released.
    """
    plain = list(takewhile(_is_plain, asked)) if len(asked) > 1 else []
    if len(plain) < 2:
        got.append((yield from asked[0].flow()))
        return
    attempts: list[Attempt] = []
    done = 0
    try:
        yield from _ask(plain, attempts)
        if not attempts:
            got.append((yield from plain[0].flow()))
        for acquisition, attempt in zip(plain, attempts, strict=False):
            got.append((yield from acquisition.flow(attempt)))
            done += 1
    except BaseException:
        for acquisition, attempt in list(zip(plain, attempts, strict=False))[done:]:
            acquisition.give_up(attempt)
        raise


def _is_plain(acquisition: Acquisition) -> bool:
    return acquisition.claim.is_exclusive and acquisition.is_plain()


def _ask(plain: Sequence[Acquisition], attempts: list[Attempt]) -> Flow[None]:
    """Ask for all at once; add what has come of those before the first that was refused."""
    backend, claims = plain[0].backend, [each.claim for each in plain]
    limit = min(backend.command_timeout, flow.patience(backend, plain[0].left) + EACH * len(plain))
    try:
        answers = yield Call(backend, "try_acquire_many", (claims, limit), claims[0].name)
    except LockBackendError as error:
        # The first one decides, as if it had asked by itself. The others may have been granted.
        attempts.append(Attempt(plain[0].started, error=error))
        if isinstance(error, StoreUnavailableError) or not isinstance(error, StoreConflictError):
            _abandon(plain[1:])
        else:
            yield from _give_back(plain[1:])
        return
    except GeneratorExit:
        _abandon(plain)
        raise
    except BaseException as error:
        if isinstance(error, AssertionError):
            raise  # nothing was let through: see `flow.acquire`
        yield from _give_back(plain)
        if not isinstance(error, asyncio.CancelledError):
            _abandon(plain)  # interrupted in the middle of the question, which may arrive later
        raise
    free = list(takewhile(lambda answer: isinstance(answer, Grant), answers))
    attempts += [Attempt(each.started, grant) for each, grant in zip(plain, free, strict=False)]
    behind = [each for each, answer in zip(plain, answers, strict=True) if answer is not None]
    yield from _give_back(behind[len(free) :])


def _give_back(granted: Sequence[Acquisition]) -> Flow[None]:
    """Release what was granted and is not kept; in the background, where that fails."""
    if not granted:
        return
    backend, claims = granted[0].backend, [each.claim for each in granted]
    try:
        yield Call(backend, "release_many", (claims,), claims[0].name)
    except BaseException as error:
        _abandon(granted)
        if not isinstance(error, LockBackendError):
            raise


def _abandon(acquisitions: Sequence[Acquisition]) -> None:
    for acquisition in acquisitions:
        acquisition.abandon()
