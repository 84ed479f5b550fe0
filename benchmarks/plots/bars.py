"""Cycles as bars, beside the baseline."""

from __future__ import annotations

from collections.abc import Iterator

from ..bench import Row
from .look import COLOURS, Axes, Figure, by_backend
from .values import number, quartiles, said

__all__ = ["draw_cycles"]


def draw_cycles(rows: list[Row]) -> Figure | None:
    """Draw a bar for each way to take a lock: how many times as fast as the fastest baseline."""
    from matplotlib.figure import Figure as NewFigure
    from matplotlib.patches import Patch

    groups = list(_beside_baselines([row for row in rows if row["measure"] == "cycles"]))
    if not groups:
        return None
    heights = [len(beside) + 1.5 for _, beside in groups]
    figure = NewFigure(figsize=(9.0, 1.2 + 0.32 * sum(heights)))
    panels = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (baseline, beside) in zip(panels, groups, strict=True):
        _bars(axes, baseline, beside)
    kinds = [Patch(color=colour, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=kinds, loc="outside lower center", ncols=len(kinds), frameon=False)
    return figure


def _beside_baselines(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the name of each backend's fastest baseline, and what was measured beside it."""
    for mine in by_backend(rows):
        baselines = [row for row in mine if row["kind"] == "baseline" and number(row, "per_second")]
        if baselines:
            baseline = max(baselines, key=lambda row: number(row, "per_second") or 0.0)["adapter"]
            yield baseline, [row for row in mine if number(row.get("times"), baseline) is not None]


def _bars(axes: Axes, baseline: str, rows: list[Row]) -> None:
    """Draw the bars of one backend, the fastest at the top, with quartiles of the rounds."""
    ratios = [(number(row["times"], baseline) or 0.0, row) for row in rows]
    ratios.sort(key=lambda each: each[0])
    ends = []
    for place, (ratio, row) in enumerate(ratios):
        low, high = quartiles(row.get("times_quartiles"), baseline, ratio)
        colour = COLOURS.get(row["kind"], COLOURS["alternative"])
        axes.barh(place, ratio, color=colour, height=0.7)
        axes.plot([low, high], [place, place], color="black", linewidth=1.2, zorder=4)
        rate = number(row, "per_second")
        text = f"  {ratio:.2f}" + ("" if rate is None else f"  ({rate:,.0f}/s)")
        above = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.text(max(ratio, high), place, text, va="center", fontsize=8, bbox=above)
        ends.append(max(ratio, high, 1.0))
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(ratios)), [said(row["adapter"]) for _, row in ratios])
    axes.set_xlim(0.0, 1.25 * max(ends))
    axes.grid(False, axis="y")
    axes.set_xlabel(f"cycles a second, as a multiple of “{said(baseline)}” (longer is faster)")
