"""Growth as panels of lines."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..bench import Row
from .look import BESIDE, COLOURS, MARKERS, Axes, Figure, Point, draw_line, label_axes, points_of
from .values import number, quartiles

__all__ = ["draw_growth"]


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the panels of growth: where its lines come from, and what its axes say."""

    measure: str
    along: str
    lines: dict[str, tuple[str, float]]  # by what each is called: the figure, and its unit
    title: str
    x: str
    y: str
    log: bool = True


WAITERS = "waiters"
GROWTH = (
    Panel(
        *("growth-waiters", WAITERS, {"p50": ("p50_us", 1e3), "p99": ("p99_us", 1e3)}),
        *("Hand-off, hold 2 ms", WAITERS, "milliseconds"),
    ),
    Panel(
        *("growth-waiters", WAITERS, {"": ("statements", 1.0)}),
        *("Asked of the store", WAITERS, "statements or messages an acquisition"),
        log=False,
    ),
    Panel(
        *("growth-keys", "keys", {"": ("per_second", 1.0)}),
        *("Cycles, one name after the other", "names in use", "cycles a second"),
        log=False,
    ),
    Panel(
        *("growth-leases", "leases", {"": ("cpu_ms_per_second", 1.0)}),
        *("Renewing", "held leases", "CPU, milliseconds a second"),
    ),
    Panel(
        "growth-leases",
        "leases",
        {"process": ("bytes_per_lease", 1.0), "store": ("store_bytes_per_lock", 1.0)},
        *("Memory", "held leases", "bytes a lease"),
    ),
)


def draw_growth(rows: list[Row]) -> Figure | None:
    """Draw the panels of growth for which there are figures."""
    from matplotlib.figure import Figure as NewFigure

    shown = [panel for panel in GROWTH if _lines(panel, rows)]
    if not shown:
        return None
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = NewFigure(figsize=(4.2 * columns, 0.8 + 3.4 * lines))
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes, panel in zip(grid, shown, strict=False):
        _panel(axes, panel, rows)
    for axes in grid[len(shown) :]:
        axes.remove()
    return figure


def _lines(panel: Panel, rows: list[Row]) -> dict[str, list[Point]]:
    mine = [row for row in rows if row["measure"] == panel.measure]
    found = {
        label: points_of(mine, panel.along, figure, unit, log=panel.log)
        for label, (figure, unit) in panel.lines.items()
    }
    return {label: points for label, points in found.items() if points}


def _panel(axes: Axes, panel: Panel, rows: list[Row]) -> None:
    mine = [row for row in rows if row["measure"] == panel.measure]
    colours = (COLOURS["ours"], COLOURS["alternative"])
    for (label, points), colour, marker in zip(
        _lines(panel, rows).items(), colours, MARKERS, strict=False
    ):
        draw_line(axes, points, {"color": colour, "marker": marker}, label)
    if panel.measure == "growth-keys":  # the only ones with rounds
        for row in mine:
            at, both = number(row, panel.along), _spread(row)
            if at is not None and at > 0 and both:
                axes.plot([at, at], both, color="black", linewidth=1.2)
    label_axes(axes, mine, panel.along, log=panel.log)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if len(panel.lines) > 1:
        axes.legend(**BESIDE)


def _spread(row: Row) -> list[float]:
    middle = number(row, "per_second")
    return [] if middle is None else list(quartiles(row, "quartiles", middle))
