"""Colours, lines and axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..bench import Row
from .values import number, said

__all__ = [
    "BESIDE",
    "COLOURS",
    "DASHES",
    "MARKERS",
    "OTHERS",
    "STYLE",
    "Axes",
    "Figure",
    "Point",
    "by_backend",
    "draw_line",
    "label_axes",
    "points_of",
]

# Okabe and Ito's colours, which the colour-blind tell apart too; as bars they differ in grey.
COLOURS = {"ours": "#0072B2", "baseline": "#7F7F7F", "alternative": "#E69F00"}
OTHERS = ("#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS = "os^DvP*X<>"
DASHES = {"ours": "-", "baseline": "--", "alternative": ":"}
STYLE: dict[str, Any] = {
    "figure.constrained_layout.use": True,
    "font.size": 9.0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#DDDDDD",
    "text.parse_math": False,
    # The same run gives the same file, whose texts can be read and searched.
    "svg.hashsalt": "django-distlock",
    "svg.fonttype": "none",
}

# Where a legend stands: matplotlib would search for a place among many points, and be slow.
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "frameon": False}

STEPS = (1.0, 2.0, 5.0)  # of an axis of powers

Figure = Any
Axes = Any
Point = tuple[float, float]


def by_backend(rows: list[Row]) -> list[list[Row]]:
    """Return the rows that stand beside each other: those of one backend of ours."""
    backends = dict.fromkeys(str(row.get("backend")) for row in rows)
    return [[row for row in rows if str(row.get("backend")) == each] for each in backends]


def points_of(rows: list[Row], along: str, figure: str, unit: float, *, log: bool) -> list[Point]:
    """Return where a line goes; what an axis of powers cannot show is left out."""
    points = []
    for row in rows:
        x, y = number(row, along), number(row, figure)
        if x is not None and y is not None and x > 0 and (y > 0 or not log):
            points.append((x, y / unit))
    return sorted(points)


def draw_line(axes: Axes, points: list[Point], style: dict[str, Any], label: str) -> Any:
    """Draw one line with its markers, and return it for a legend."""
    xs, ys = zip(*points, strict=True)
    (line,) = axes.plot(xs, ys, label=said(label), markersize=5, **style)
    return line


def label_axes(axes: Axes, rows: list[Row], along: str, *, log: bool) -> None:
    """Have plain numbers at the axes; along the lower one those that were measured."""
    from matplotlib.ticker import LogLocator

    plain: Callable[[float, int], str] = lambda value, _: f"{value:,g}"  # noqa: E731
    at = sorted({x for row in rows if (x := number(row, along)) is not None and x > 0})
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(at, [f"{x:,g}" for x in at])
    if log:
        axes.set_yscale("log", subs=[])
        axes.yaxis.set_major_locator(LogLocator(subs=STEPS))
        low, high = axes.get_ylim()
        axes.set_ylim(_below(low), _above(high))
    else:
        axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(plain)


def _below(value: float) -> float:
    """Return the next step downwards, so that any axis has one there."""
    return max((each for each in _steps(value) if each <= value), default=value)


def _above(value: float) -> float:
    return min((each for each in _steps(value) if each >= value), default=value)


def _steps(value: float) -> list[float]:
    power = 10.0 ** math.floor(math.log10(value))
    return [step * power for step in (*STEPS, 10.0)]
