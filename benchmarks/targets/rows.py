"""What the targets are judged from: the lines of one store, found by what they are of."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..bench import Row

__all__ = ["Found", "Rows", "not_installed", "rates", "several"]

Found = Iterator[tuple[str, str, float, float | str]]
"""What was measured, ">=", ">" or "<=", what is wanted, and what was got, or why nothing was."""


class Rows:
    """The lines of one store, and the names of what could not be measured there."""

    def __init__(self, rows: list[Row], store: str, absent: Collection[str] = ()) -> None:
        self.rows = [row for row in rows if row["store"] == store]
        self.absent = absent

    def get(self, measure: str, adapter: str, **facts: object) -> Row | None:
        """Return the line of an adapter, if it was measured."""
        wanted = {"measure": measure, "adapter": adapter, **facts}
        return next((row for row in self.rows if wanted.items() <= row.items()), None)

    def waiters(self) -> list[int]:
        """Return the numbers of waiters that hand-offs were measured with."""
        return sorted({row["waiters"] for row in self.rows if row["measure"] == "handoff"})


def rates(rows: Rows, measure: str, who: str, limits: dict[str, float], label: str = "") -> Found:
    """Judge how many times as fast as others it is, of those that were measured beside it."""
    ours = rows.get(measure, who)
    for other, wanted in limits.items():
        if ours and other in ours["times"]:
            yield f"{label}{measure} / {other}", ">=", wanted, ours["times"][other]
        elif ours and other in rows.absent:
            yield f"{label}{measure} / {other}", ">=", wanted, not_installed(other)


def several(rows: Rows, alone: str, dearer: float) -> Found:
    """Judge what locks cost that several hold, beside the one that one ``alone`` holds."""
    for kind in ("shared", "limit=4"):
        yield from rates(
            rows, "cycles", f"{alone}, {kind}", {alone: round(1 / dearer, 3)}, f"{kind}: "
        )
    if limited := rows.get("several", f"{alone}, limit=4", hold_ms=20.0):
        yield f"{alone}, limit=4: work / one at once", ">=", 3.5, limited["times"]
    timed = [row for row in rows.rows if row["measure"] == "limits" and "p50_us" in row]
    ours = {row["at_once"]: row for row in timed if row["adapter"].startswith(f"{alone}, ")}
    for row in timed:
        if row["kind"] == "alternative" and (mine := ours.get(row["at_once"])):
            what = f"hand-off p50 / {row['adapter']}, {row['waiters']} waiters"
            yield what, "<=", 1.0, round(mine["p50_us"] / row["p50_us"], 3)


def not_installed(name: str) -> str:
    """Return why nothing is judged beside another."""
    return f"{name} is not installed"
