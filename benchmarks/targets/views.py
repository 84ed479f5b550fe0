"""The target of `locked_view`, on every store."""

from __future__ import annotations

from .rows import Found, Rows

__all__ = ["judge_views"]

MOST = 150.0  # microseconds
CYCLES = {
    "locked_view": "with lock() inside",
    "locked_view on a class": "with lock() inside of a class",
}


def judge_views(rows: Rows) -> Found:
    """Judge what the decorator takes of the client's time, over the bare lock."""
    for ours, bare in CYCLES.items():
        mine, other = rows.get("views", ours), rows.get("views", bare)
        if mine and other:
            added = round(mine["cpu_ms_per_1000"] - other["cpu_ms_per_1000"], 1)
            yield f"{ours} over the bare lock, us of CPU", "<=", MOST, added
