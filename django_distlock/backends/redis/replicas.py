"""Grants that count only when replicas have them."""

from __future__ import annotations

import time
from typing import Any, Protocol

from ...core.values import Claim, Grant, Refusal
from .commands import Command, Talk, one

__all__ = ["replicated"]


class Way(Protocol):
    """What is needed of a technique."""

    def acquire(self, claim: Claim, home: bytes) -> Talk[Any]: ...
    def release(self, claim: Claim) -> Talk[bool]: ...
    def understand(self, claim: Claim, answer: Any) -> Grant | Refusal: ...
    def measured(self, seconds: float) -> None: ...


def replicated(way: Way, claim: Claim, home: bytes, least: int, patience: float) -> Talk[Any]:
    """Attempt once; undo a grant that fewer than ``least`` replicas have when the time is up."""
    from redis.exceptions import RedisError

    began = time.monotonic()
    answer = yield from way.acquire(claim, home)
    way.measured(time.monotonic() - began)
    if not isinstance(way.understand(claim, answer), Grant):
        return answer
    limit = max(1, int(patience * 500))  # ms: the rest is for the answer on its way
    command: Command = ("WAIT", least, limit)
    have = yield from one(command)
    if have < least:
        yield from way.release(claim)
        raise RedisError(f"{have} replicas have the grant, and WAIT_REPLICAS is {least}")
    return answer
