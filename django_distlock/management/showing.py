"""Locks as a terminal shows them. What is in a store may be hostile: see `text.shown`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from ..core.text import duration, shown
from ..core.values import LockInfo

__all__ = ["as_block", "as_json", "as_table"]

NAME = 60  # characters of a name in the table; the whole one is in the JSON
COLUMNS = ("ALIAS", "NAME", "HOLDER", "HELD FOR", "TTL LEFT", "TOKEN", "WAITERS")


def as_table(held: Iterable[tuple[str, LockInfo]], now: datetime) -> str:
    """Return a line for each lock, given with its alias, in columns."""
    rows = [_row(alias, info, now) for alias, info in held]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    return "\n".join(_line(row, widths) for row in (COLUMNS, *rows))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(alias: str, info: LockInfo, now: datetime) -> tuple[str, ...]:
    return (
        alias,
        shown(info.name, NAME) + (f" ({mode})" if (mode := _mode(info)) else ""),
        str(replace(info.holder, site="")),
        "-" if (age := info.age(now)) is None else duration(age),
        "-" if info.expires_at is None else _left(info, info.expires_at, now),
        "-" if info.fencing_token is None else str(info.fencing_token),
        "-" if info.waiters is None else str(info.waiters),
    )


def _mode(info: LockInfo) -> str:
    """Return how a lock is held that several may hold."""
    if info.limit is not None:
        return f"slot {'?' if info.slot is None else info.slot}, limit {info.limit}"
    return "shared" if info.shared else ""


def _left(info: LockInfo, expires: datetime, now: datetime) -> str:
    until = info.held_until()
    kept = " (min_hold)" if until is not None and until > now else ""
    return f"{duration((expires - now).total_seconds())}{kept}"


def as_block(alias: str, info: LockInfo, now: datetime) -> str:
    """Return all that is known of one lock, a line for each fact."""
    holder = info.holder
    facts = {
        "alias": alias,
        "name": shown(info.name, 10_000),
        "held": _mode(info),
        "host": shown(holder.host) or "?",
        "pid": str(holder.pid or "?"),
        "thread": shown(holder.thread),
        "task": shown(holder.task),
        "view": shown(holder.view),
        "user": shown(holder.user),
        "call site": shown(holder.site, 1000),
        "since": _moment(info.acquired_at, now),
        "until": _moment(info.expires_at, now),
        "min_hold": _moment(info.held_until(), now),
        "token": "" if info.fencing_token is None else str(info.fencing_token),
        "waiters": "" if info.waiters is None else str(info.waiters),
        **{
            f"{number}.": shown(str(each), 300) for number, each in enumerate(info.waiting, start=1)
        },
        "metadata": json.dumps(dict(info.metadata)) if info.metadata else "",
    }
    return "\n".join(f"{name:<9}  {value}" for name, value in facts.items() if value)


def _moment(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    seconds = (moment - now).total_seconds()
    when = f"in {duration(seconds)}" if seconds > 0 else f"{duration(-seconds)} ago"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {when}"


def as_json(alias: str, info: LockInfo) -> dict[str, Any]:
    """Return a lock for `json.dumps`, which escapes whatever is not ASCII."""
    return {
        "alias": alias,
        "name": info.name,
        "holder": asdict(info.holder),
        "fencing_token": info.fencing_token,
        "acquired_at": info.acquired_at and info.acquired_at.isoformat(),
        "expires_at": info.expires_at and info.expires_at.isoformat(),
        "held_until": (until := info.held_until()) and until.isoformat(),
        "shared": info.shared,
        "limit": info.limit,
        "slot": info.slot,
        "waiters": info.waiters,
        "waiting": [asdict(each) for each in info.waiting],
        "metadata": dict(info.metadata),
    }
