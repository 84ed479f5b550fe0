"""Plots of a run, drawn from its JSON: cycles beside the baseline, hand-offs, and growth.

What is drawn may have been written by anybody, so no text of it is taken for markup, a formula or
a path.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from ..bench import Row
from .bars import draw_cycles
from .growth import draw_growth
from .handoffs import draw_handoffs
from .look import STYLE, Figure
from .values import said

__all__ = ["PlotError", "draw", "get_ready", "load"]

DRAWN: dict[str, tuple[str, Callable[[list[Row]], Figure | None]]] = {
    "cycles": ("cycles beside the baseline", draw_cycles),
    "handoff": ("hand-off, hold 2 ms", draw_handoffs),
    "growth": ("growth", draw_growth),
}


class PlotError(RuntimeError):
    """Nothing can be drawn, and why."""


def get_ready(folder: Path) -> None:
    """Raise PlotError unless there is what draws, and the folder: before anything is measured."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotError("Plots need matplotlib, of the group `bench`: pip install --group bench")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlotError(f"There is no folder {folder}: {error}") from error


def load(file: Path) -> Any:
    """Return what a run has written."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise PlotError(f"{file} cannot be read as JSON: {error}") from error


def draw(run: Any, folder: Path) -> list[Path]:
    """Draw what the run has of each store, as PNG and SVG, and return the files."""
    get_ready(folder)
    import matplotlib

    rows = _rows(run)
    stores = list(dict.fromkeys(row["store"] for row in rows))
    paths: list[Path] = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not what the user likes in other plots
        matplotlib.rcParams.update(STYLE)
        for store, name in zip(stores, _file_names(stores), strict=True):
            mine = [row for row in rows if row["store"] == store]
            for what, (title, drawn) in DRAWN.items():
                if (figure := drawn(mine)) is not None:
                    figure.suptitle(f"{said(store)}: {title}, {_run(run)}")
                    paths += _save(figure, folder / f"{name}-{what}")
    return paths


def _rows(run: Any) -> list[Row]:
    rows = run.get("results") if isinstance(run, dict) else None
    if not isinstance(rows, list):
        raise PlotError("That is not the JSON of a run: it has no list of `results`")
    words = ("store", "measure", "adapter", "kind")
    return [
        row
        for row in rows
        if isinstance(row, dict) and all(isinstance(row.get(word), str) for word in words)
    ]


def _run(run: Any) -> str:
    """Return when and where it was."""
    known = run.get("about")
    about = known if isinstance(known, dict) else {}
    when = f"run of {said(about.get('at', 'an unknown date'))}"
    quick = " (quick: no figures to quote)" if about.get("quick") else ""
    where = [said(about[word]) for word in ("machine", "versions") if word in about]
    return f"{when}{quick}\n{', '.join(where)}"


def _file_names(stores: Sequence[str]) -> list[str]:
    """Return a name for each, that is no path and no other's."""
    names: list[str] = []
    for store in stores:
        name = re.sub(r"[^a-z0-9]+", "-", store.lower())[:40].strip("-") or "store"
        others = (f"{name}-{number}" for number in count(2))
        names.append(next(each for each in chain([name], others) if each not in names))
    return names


def _save(figure: Figure, path: Path) -> Iterator[Path]:
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        file = path.with_name(f"{path.name}.{kind}")
        figure.savefig(file, format=kind, dpi=144, metadata=metadata)
        yield file
