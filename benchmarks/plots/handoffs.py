"""Hand-offs as lines, by the number of those who wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..bench import Row
from .look import (
    BESIDE,
    COLOURS,
    DASHES,
    MARKERS,
    OTHERS,
    Axes,
    Figure,
    Point,
    by_backend,
    draw_line,
    label_axes,
    points_of,
)

__all__ = ["draw_handoffs"]


def draw_handoffs(rows: list[Row]) -> Figure | None:
    """Draw the median and the p99 of each way to take a lock, by the number of waiters."""
    from matplotlib.figure import Figure as NewFigure

    mine = [row for row in rows if row["measure"] == "handoff"]
    groups = [group for group in by_backend(mine) if _points(group, "p50")]
    if not groups:
        return None
    heights = [2.2 + 0.2 * len(_names(group)) for group in groups]
    figure = NewFigure(figsize=(11.0, 0.8 + sum(heights)))
    grid = figure.subplots(len(groups), 2, sharey="row", squeeze=False, height_ratios=heights)
    for panels, group in zip(grid, groups, strict=True):
        for axes, part in zip(panels, ("p50", "p99"), strict=True):
            _panel(axes, group, part)
        panels[0].set_ylabel("milliseconds (lower is faster)")
        drawn = panels[0].get_legend_handles_labels()
        panels[1].legend(*drawn, **BESIDE)
    return figure


def _names(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["adapter"], row["kind"]) for row in rows))


def _points(rows: list[Row], part: str) -> list[Point]:
    return points_of(rows, "waiters", f"{part}_us", 1e3, log=True)


def _panel(axes: Axes, rows: list[Row], part: str) -> None:
    names = _names(rows)
    for place, (name, kind) in enumerate(names):
        points = _points(
            [row for row in rows if (row["adapter"], row["kind"]) == (name, kind)], part
        )
        if points:
            draw_line(axes, points, _style(place, kind, names), name)
    label_axes(axes, rows, "waiters", log=True)
    axes.set_title(f"{part} of the hand-off")
    axes.set_xlabel("waiters, each a process")


def _style(place: int, kind: str, names: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return how a line looks: ours stand out, and ten of a kind have markers of their own."""
    first = next(number for number, (_, other) in enumerate(names) if other == kind)
    colour = OTHERS[(place - first) % len(OTHERS)] if kind == "alternative" else COLOURS.get(kind)
    return {
        "color": colour,
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": DASHES.get(kind, ":"),
        "linewidth": 2.2 if kind == "ours" else 1.2,
    }
