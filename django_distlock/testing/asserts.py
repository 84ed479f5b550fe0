"""`assert_held` and `assert_free`: who holds a lock now, told in full by the failure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import ClassVar

from ..backends.base import BaseLockBackend
from ..core import flow
from ..core.flow import Flow
from ..core.names import check_name
from ..core.values import LockInfo
from ..handler import locks
from ..transactions import Ask, is_pending, sweep

__all__ = ["aassert_free", "aassert_held", "assert_free", "assert_held"]

SHOWN = 10  # locks that a message lists


def assert_held(name: str, *, using: str = "default") -> LockInfo:
    """Raise AssertionError unless the lock is held; return who holds it.

    The message lists what is held by the alias instead. Works on every backend.
    """
    __tracebackhide__ = True
    return flow.run(_held(name, using))


async def aassert_held(name: str, *, using: str = "default") -> LockInfo:
    """Assert as `assert_held`."""
    __tracebackhide__ = True
    return await flow.arun(_held(name, using))


def assert_free(name: str, *, using: str = "default") -> None:
    """Raise AssertionError when the lock is held.

    The message says who, since when and where it was taken. Works on every backend.
    """
    __tracebackhide__ = True
    flow.run(_free(name, using))


async def aassert_free(name: str, *, using: str = "default") -> None:
    """Assert as `assert_free`."""
    __tracebackhide__ = True
    await flow.arun(_free(name, using))


@dataclass(frozen=True, slots=True)
class _Listing:
    """A step of a flow: list what is held, as far as a message shows it."""

    interruptible: ClassVar[bool] = True

    backend: BaseLockBackend

    def do(self) -> list[LockInfo]:
        return list(islice(self.backend.held(), SHOWN + 1))

    async def ado(self) -> list[LockInfo]:
        return await self.backend.off_loop(self.do)


def _inspect(name: str, using: str) -> Flow[LockInfo | None]:
    check_name(name, using)
    if is_pending():
        yield Ask(sweep)
    info: LockInfo | None = yield flow.Call(locks[using], "inspect", (name,), name)
    return info


def _held(name: str, using: str) -> Flow[LockInfo]:
    __tracebackhide__ = True
    info = yield from _inspect(name, using)
    if info is not None:
        return info
    message = f"Lock {name!r:.140} of alias {using!r} is free."
    backend = locks[using]
    if not backend.exclusive:
        message += f" {type(backend).__name__} holds nothing: use override_locks()."
    if not backend.shows_holders:
        raise AssertionError(message)
    others: list[LockInfo] = yield _Listing(backend)
    shown = [f"\n  {other.name!r:.140}, {_who(other)}" for other in others[:SHOWN]]
    if len(others) > SHOWN:
        shown.append("\n  and others")
    message += f" Held are:{''.join(shown)}" if shown else " Nothing is held."
    raise AssertionError(message)


def _free(name: str, using: str) -> Flow[None]:
    __tracebackhide__ = True
    info = yield from _inspect(name, using)
    if info is not None:
        raise AssertionError(f"Lock {name!r:.140} of alias {using!r} is held, {_who(info)}.")


def _who(info: LockInfo) -> str:
    now = datetime.now(UTC)
    text = f"by {info.holder}"
    if info.acquired_at is not None:
        text += f", for {_seconds(info.acquired_at, now)} (since {info.acquired_at:%H:%M:%S} UTC)"
    if info.expires_at is not None:
        text += f", for another {_seconds(now, info.expires_at)} unless renewed"
    return text + (f", token {info.fencing_token}" if info.fencing_token is not None else "")


def _seconds(begin: datetime, end: datetime) -> str:
    return f"{max(0.0, (end - begin).total_seconds()):.1f} s"
