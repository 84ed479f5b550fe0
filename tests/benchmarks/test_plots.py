"""Plots are drawn from the JSON of a run, whatever stands in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.plots import PlotError, draw, get_ready, load
from tests.benchmarks.test_harness import run

WHATS = ("cycles", "handoff", "growth")
HOSTILE = (
    '</text><script>alert(1)</script>&amp;]]>"',
    "$\\frac{1}{$ 100% {x}",
    "../../etc/\x00passwd\n\x1b[31m\ud800",
    "_legend\u202e 中文 \U0001f512",
    "",
    "long " * 1000,
)


def results(store: str, ours: str = "django-distlock") -> list[dict[str, Any]]:
    """Return the lines of a run of one store."""
    who = {"store": store, "adapter": ours, "kind": "ours"}
    baseline = {"store": store, "adapter": "bare", "kind": "baseline"}
    spread = {"bare": [0.7, 0.9]}
    waited = {"waiters": 2, "p50_us": 400, "p99_us": 900}
    held = {"leases": 1, "cpu_ms_per_second": 0.0, "bytes_per_lease": 900}
    return [
        {"measure": "cycles", **baseline, "per_second": 100, "times": {"bare": 1.0}},
        {"measure": "cycles", **who, "times": {"bare": 0.8}, "times_quartiles": spread},
        {"measure": "handoff", **who, **waited},
        {"measure": "handoff", **baseline, **waited, "waiters": 8},
        {"measure": "growth-waiters", **who, **waited, "statements": 2.5},
        {"measure": "growth-keys", **who, "keys": 1, "per_second": 90, "quartiles": [80, 95]},
        {"measure": "growth-leases", **who, **held},
    ]


def texts(file: Path) -> str:
    """Return what can be read in an SVG, of which every element is one of SVG's."""
    root = ElementTree.parse(file).getroot()
    names = {element.tag for element in root.iter()}
    assert not any("script" in name for name in names)
    return " ".join(root.itertext())


def check(paths: list[Path], folder: Path) -> None:
    """See that each is what it is called, holds something and lies in the folder."""
    for path in paths:
        assert path.parent == folder
        start = path.read_bytes()[:8]
        assert path.stat().st_size > 5000
        if path.suffix == ".png":
            assert start == b"\x89PNG\r\n\x1a\n"
        else:
            texts(path)


def test_a_run_is_drawn_later(tmp_path: Path) -> None:
    """Draw from a file by the program, and say store, date and units; twice the same."""
    about = {"at": "2026-01-02T03:04:05Z", "quick": True, "machine": "2 cores"}
    file, folder = tmp_path / "out.json", tmp_path / "deep" / "plots"
    file.write_text(json.dumps({"about": about, "results": results("sqlite")}))
    done = run("--from", str(file), "--plots", str(folder))
    assert done.returncode == 0, done.stderr
    names = [f"sqlite-{what}.{kind}" for what in WHATS for kind in ("png", "svg")]
    assert done.stdout.splitlines() == [str(folder / name) for name in names]
    check([folder / name for name in names], folder)
    for what in WHATS:
        said = texts(folder / f"sqlite-{what}.svg")
        assert "sqlite" in said
        assert "2026-01-02T03:04:05Z (quick: no figures to quote)" in said
    assert "as a multiple of “bare”" in texts(folder / "sqlite-cycles.svg")
    assert "milliseconds" in texts(folder / "sqlite-handoff.svg")
    assert "bytes a lease" in texts(folder / "sqlite-growth.svg")
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw(load(file), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first


def test_hostile_texts_break_nothing(tmp_path: Path) -> None:
    """Take names of stores, adapters and machines for nothing but texts."""
    stores = dict(zip(HOSTILE, HOSTILE[2:], strict=False))
    lines = [line for store, ours in stores.items() for line in results(store, ours)]
    folder = tmp_path / "plots"
    about = dict.fromkeys(("at", "machine", "versions"), HOSTILE[0])
    paths = draw({"about": about, "results": lines}, folder)
    assert len(set(paths)) == len(stores) * len(WHATS) * 2
    assert set(folder.iterdir()) == set(paths)
    check(paths, folder)
    said = [texts(path) for path in paths if path.suffix == ".svg"]
    assert any("</text><script>alert(1)</script>" in text for text in said)
    assert any("$\\frac{1}{$ 100% {x}" in text for text in said)


def test_strange_figures_are_left_out(tmp_path: Path) -> None:
    """Draw what is a number, and nothing where there is none."""
    good = results("sqlite")
    strange: list[Any] = [None, "12", True, [], {}, 10**400, float("nan"), float("inf"), -1, 0]
    bad = [
        {**line, key: each} for line in good for key in line if key != "store" for each in strange
    ]
    paths = draw({"about": None, "results": [*good, *bad, None, 1, {}]}, tmp_path)
    check(paths, tmp_path)
    assert len(paths) == 6
    assert draw({"results": []}, tmp_path) == []


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"results": {}}', "\x00"])
def test_what_is_no_run_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(text)
    with pytest.raises(PlotError, match=r"JSON"):
        draw(load(file), tmp_path / "plots")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the file, the folder, and the group, before anything is measured."""
    with pytest.raises(PlotError, match=r"none\.json"):
        load(tmp_path / "none.json")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(PlotError, match="There is no folder"):
        get_ready(file)
    done = run("--only", "cycles", "--plots", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith("There is no folder")
    done = run("--from", str(file))
    assert done.returncode == 2
    assert "--from needs --plots" in done.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match="pip install --group bench"):
        get_ready(tmp_path)
