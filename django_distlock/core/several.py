"""Acquiring several locks, in the order given: in few round trips, where their store can.

Most locks are free, so the store is asked for many by one question; each acquisition then goes on
from its own answer, as from a plain call. Where one of them is held, those behind it are given back
before it is waited for: whoever waits holds only what comes before it, or two groups could wait for
each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import compress, takewhile
from typing import TypeAlias

from ..exceptions import LockBackendError, StoreConflictError, StoreUnavailableError
from ..lease import Lease
from . import flow
from .acquisition import Acquisition
from .flow import Attempt, Call, Flow
from .values import Grant

__all__ = ["acquire_some"]

Asked: TypeAlias = "dict[Acquisition, Attempt | None]"

EACH = 0.02  # seconds that a store may take for each, beside those for one


def acquire_some(asked: Sequence[Acquisition], got: list[Lease]) -> Flow[bool]:
    """Acquire the first, waiting for it, and as many of the others as are free; add the leases.

    All are of one backend. Returns whether to go on so: not after a conflict, which all the locks
    of a question share. Raises what the first one raises that fails, and then only the leases that
    were added are left to be released.
    """
    plain = list(takewhile(_is_plain, asked)) if len(asked) > 1 else []
    if len(plain) < 2:
        got.append((yield from asked[0].flow()))
        return True
    # What the store may have granted, and what has come of the question, once that is known.
    asked_for: Asked = dict.fromkeys(plain)
    before = len(got)
    try:
        asked_for, held = yield from _ask(plain, asked_for)
        for acquisition, attempt in asked_for.items():
            got.append((yield from acquisition.flow(attempt)))
        if held is not None:
            if held.left is not None:
                held.left = max(0.0, held.left - (held.backend.clock() - held.started))
            got.append((yield from held.flow()))
        return held is not None or len(asked_for) == len(plain)
    except BaseException:
        for acquisition, attempt in list(asked_for.items())[len(got) - before :]:
            if attempt is None:
                acquisition.abandon()
            else:
                acquisition.give_up(attempt)
        raise


def _is_plain(acquisition: Acquisition) -> bool:
    return acquisition.claim.is_exclusive and acquisition.is_plain()


def _ask(plain: Sequence[Acquisition], asked_for: Asked) -> Flow[tuple[Asked, Acquisition | None]]:
    """Ask for all at once; return what came of those before the first that is held, and that."""
    backend, claims = plain[0].backend, [each.claim for each in plain]
    limit = min(backend.command_timeout, flow.patience(backend, plain[0].left) + EACH * len(plain))
    try:
        answers = yield Call(backend, "try_acquire_many", (claims, limit), claims[0].name)
    except LockBackendError as error:
        if isinstance(error, StoreUnavailableError) or not isinstance(error, StoreConflictError):
            for each in plain[1:]:
                each.abandon()
        else:
            yield from _give_back(plain[1:])
        # The first one decides what follows, as if it had asked by itself.
        return {plain[0]: Attempt(plain[0].started, error=error)}, None
    except AssertionError:
        asked_for.clear()  # nothing was let through: see `flow.acquire`
        raise
    except asyncio.CancelledError:  # which waits for the answer
        yield from _give_back(plain)
        asked_for.clear()
        raise
    count = sum(1 for _ in takewhile(lambda answer: isinstance(answer, Grant), answers))
    yield from _give_back(list(compress(plain[count:], answers[count:])))
    free = zip(plain[:count], answers, strict=False)
    told: Asked = {each: Attempt(each.started, grant) for each, grant in free}
    return told, plain[count] if count < len(plain) else None


def _give_back(granted: Sequence[Acquisition]) -> Flow[None]:
    """Release what was granted and is not kept; in the background, where the store fails."""
    if not granted:
        return
    backend, claims = granted[0].backend, [each.claim for each in granted]
    try:
        yield Call(backend, "release_many", (claims,), claims[0].name)
    except LockBackendError:
        for each in granted:
            each.abandon()
