"""The tables that are printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bench import Row
from .targets import Verdict

__all__ = ["report"]

COLUMNS: dict[str, dict[str, str]] = {
    "engine": {
        "adapter": "a lock in memory, one core",
        "kind": "kind",
        "cycle": "cycle",
        "microseconds": "client CPU us/cycle",
        "of_baseline": "of the baseline's",
    },
    "cycles": {
        "adapter": "acquire + release, one core",
        "kind": "kind",
        "per_second": "cycles/s",
        "quartiles": "quartiles",
        "best": "best",
        "microseconds": "us/cycle",
        "cpu_ms_per_1000": "client CPU ms/1000",
        "statements": "statements each",
    },
    "save": {
        "adapter": "save() of a row that was read, one core",
        "kind": "kind",
        "per_second": "saves/s",
        "quartiles": "quartiles",
        "best": "best",
        "microseconds": "us/save",
        "cpu_ms_per_1000": "client CPU ms/1000",
    },
    "views": {
        "adapter": "a view under a lock, one core",
        "kind": "kind",
        "per_second": "calls/s",
        "quartiles": "quartiles",
        "best": "best",
        "microseconds": "us/call",
        "cpu_ms_per_1000": "client CPU ms/1000",
    },
    "handoff": {
        "adapter": "hand-off, hold 2 ms",
        "kind": "kind",
        "waiters": "waiters",
        "samples": "samples",
        "p50_us": "p50 us",
        "p99_us": "p99 us",
        "per_second": "hand-offs/s",
        "statements": "statements each",
        "cpu_ms_per_1000": "client CPU ms/1000",
        "failures": "errors",
        "overlaps": "overlaps",
    },
    "fairness": {
        "adapter": "fairness, 8 waiters, hold 1 ms",
        "kind": "kind",
        "most": "most",
        "least": "least",
        "most_per_least": "most/least",
        "per_second": "grants/s",
        "failures": "errors",
        "overlaps": "overlaps",
    },
    "several": {
        "adapter": "8 workers",
        "kind": "kind",
        "hold_ms": "hold ms",
        "at_once": "at once",
        "per_second": "holds/s",
        "times": "times one at once",
    },
    "limits": {
        "adapter": "hand-off with a limit, hold 2 ms times the limit",
        "kind": "kind",
        "at_once": "at once",
        "waiters": "waiters",
        "samples": "samples",
        "p50_us": "p50 us",
        "p99_us": "p99 us",
        "per_second": "hand-offs/s",
        "statements": "statements each",
        "cpu_ms_per_1000": "client CPU ms/1000",
        "failures": "errors",
        "overlaps": "too many",
    },
    "failing": {
        "adapter": "failing attempts",
        "kind": "kind",
        "attempts": "attempts",
        "microseconds": "us each",
        "writes": "written",
        "idle": "idle as long",
        "writes_of_cycles": "of 100 cycles",
    },
    "memory": {
        "adapter": "memory of held leases",
        "leases": "leases",
        "allocated_kb": "allocated kB",
        "rss_kb": "RSS kB",
        "bytes_per_lease": "bytes/lease",
        "store_bytes_per_lock": "bytes/lock in the store",
    },
    "renewals": {
        "adapter": "leases renewed by one watchdog",
        "leases": "leases",
        "ttl": "ttl",
        "acquired_in": "acquired in s",
        "seconds": "held s",
        "cpu_percent": "CPU %",
        "rss_mb": "RSS MB",
        "least_remaining": "least left s",
        "lost": "lost",
        "missing_in_store": "missing in store",
    },
    "growth-waiters": {
        "adapter": "hand-off, hold 2 ms, waiters in threads",
        "waiters": "waiters",
        "processes": "processes",
        "samples": "samples",
        "p50_us": "p50 us",
        "p99_us": "p99 us",
        "per_second": "hand-offs/s",
        "statements": "statements each",
        "cpu_ms_per_1000": "client CPU ms/1000",
        "failures": "errors",
    },
    "growth-keys": {
        "adapter": "acquire + release, one name after the other",
        "keys": "names",
        "per_second": "cycles/s",
        "quartiles": "quartiles",
        "best": "best",
        "microseconds": "us/cycle",
        "cpu_ms_per_1000": "client CPU ms/1000",
    },
    "growth-leases": {
        "adapter": "leases held and renewed by one process",
        "leases": "leases",
        "ttl": "ttl",
        "seconds": "held s",
        "cpu_ms_per_second": "CPU ms/s",
        "bytes_per_lease": "bytes/lease",
        "store_bytes_per_lock": "bytes/lock in the store",
        "rss_mb": "RSS MB",
        "least_remaining": "least left s",
        "lost": "lost",
        "missing_in_store": "missing in store",
    },
}


def report(rows: list[Row], verdicts: list[Verdict]) -> str:
    """Return all tables as text."""
    parts = []
    for store in dict.fromkeys(row["store"] for row in rows):
        for measure, columns in COLUMNS.items():
            mine = [row for row in rows if (row["store"], row["measure"]) == (store, measure)]
            if mine:
                head, body = list(columns.values()), [[row.get(c) for c in columns] for row in mine]
                if measure in ("cycles", "save"):
                    _add_ratios(head, body, mine)
                parts.append(f"{store}\n{table(head, body)}")
    if verdicts:
        body = [[v.store, v.what, f"{v.sign} {v.wanted:g}", _got(v), _judged(v)] for v in verdicts]
        parts.append(table(["targets", "what", "wanted", "got", "verdict"], body))
    return "\n\n".join(parts)


def _got(verdict: Verdict) -> float | None:
    return None if isinstance(verdict.got, str) else verdict.got


def _judged(verdict: Verdict) -> str:
    if isinstance(verdict.got, str):
        return f"not judged: {verdict.got}"
    return f"{'reached' if verdict.reached else 'MISSED'}, {verdict.off_by}"


def _add_ratios(head: list[str], body: list[list[Any]], rows: list[Row]) -> None:
    """Add how many times as fast as each baseline and as ours."""
    for other in rows:
        if other["kind"] in ("ours", "baseline"):
            head.append(f"x {other['adapter']}")
            for line, row in zip(body, rows, strict=True):
                line.append(row["times"][other["adapter"]])


def table(head: list[str], body: list[list[Any]]) -> str:
    """Return an aligned table; the first column is of words."""
    lines = [head, *([_text(cell) for cell in line] for line in body)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return "\n".join("  ".join(_placed(line, widths)).rstrip() for line in lines)


def _placed(line: list[str], widths: list[int]) -> Iterator[str]:
    for place, (cell, width) in enumerate(zip(line, widths, strict=True)):
        yield cell.ljust(width) if place == 0 else cell.rjust(width)


def _text(cell: Any) -> str:
    match cell:
        case None:
            return "-"
        case dict():
            return ", ".join(f"{what} {count}" for what, count in cell.items()) or "-"
        case list():
            return "-".join(map(_text, cell))
        case int():
            return f"{cell:,}"
        case _:
            return str(cell)
