"""The benchmarks run, and what they check can fail. How fast anything is, is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapter import Kind
from benchmarks.measures.waiting import Hold, OverlapError, count_overlaps
from benchmarks.report import report
from benchmarks.savers import ConcurrencySave, absent_savers, savers
from benchmarks.targets import judge
from tests.servers import DATABASES, chosen

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a program: they fork, which this process with its threads must not."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "benchmarks", *arguments],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=False,
        timeout=240,
    )


def check_hand_overs(rows: list[dict[str, Any]]) -> None:
    """See that there were some, and what they took: of a few no figure, as a round is short."""
    many = [row for row in rows if row["samples"] >= 10]
    assert many, rows
    assert all(row["statements"] >= 2 for row in many), many


def strict(text: str) -> Any:
    """Parse JSON as its standard has it: no NaN, no Infinity."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_quick_run_prints_tables_and_writes_json(tmp_path: Path) -> None:
    """Measure everything but many leases, for a moment, on SQLite."""
    file = tmp_path / "out.json"
    measures = "cycles,handoff,fairness,failing,save,views"
    words = (
        "--stores",
        "sqlite",
        "--only",
        measures,
        "--quick",
        "--rounds",
        "1",
        "--json",
        str(file),
    )
    done = run(*words)
    assert done.returncode == 0, done.stderr
    written = strict(file.read_text())
    rows = written["results"]
    assert {row["measure"] for row in rows} == set(measures.split(","))
    assert {row["store"] for row in rows} == {"sqlite"}
    assert all(row["per_second"] > 0 for row in rows if row["measure"] == "cycles")
    ours = [row for row in rows if row["kind"] == "ours" and row["measure"] == "handoff"]
    assert [row["waiters"] for row in ours] == [
        2,
        2,
        2,
        4,
        4,
        4,
    ]  # the table, also polling, and version
    check_hand_overs(ours)
    assert "cycles / bare statements" in {target["what"] for target in written["targets"]}
    cycles = {row["adapter"] for row in rows if row["measure"] == "cycles"}
    assert {"django-distlock version", "bare compare-and-swap"} < cycles
    assert "django-distlock row" not in cycles  # which SQLite cannot do
    saves = {row["adapter"]: row["per_second"] for row in rows if row["measure"] == "save"}
    assert saves["VersionedModel.save()"] > 0
    assert saves["plain save()"] > 0
    assert "locked_view over the bare lock, us of CPU" in {
        target["what"] for target in written["targets"]
    }
    for word in ("django-distlock", "bare statements", "cycles/s", "saves/s", "p99 us", "wanted"):
        assert word in done.stdout


@pytest.mark.parametrize("store", [store for store in DATABASES if store in chosen()])
def test_row_locks_stand_beside_the_bare_ones(store: str, tmp_path: Path) -> None:
    """Measure cycles and hand-offs of the row backend alone, for a moment, on a server."""
    file = tmp_path / "out.json"
    words = ("--backends", "row", "--only", "cycles,handoff", "--quick", "--rounds", "1")
    wanted = {
        "django-distlock row: cycles / bare FOR UPDATE",
        "django-distlock row: hand-off p50 / bare FOR UPDATE, 4 waiters",
    }
    targets: set[str] = set()
    for _ in range(3):  # what stands still for that moment hands nothing off
        done = run("--stores", store, *words, "--json", str(file))
        assert done.returncode == 0, done.stderr
        written = strict(file.read_text())
        for measure in ("cycles", "handoff"):
            seen = {row["adapter"] for row in written["results"] if row["measure"] == measure}
            assert seen == {"django-distlock row", "bare FOR UPDATE", "select_for_update()"}
        targets = {target["what"] for target in written["targets"]}
        if wanted <= targets:
            break
    assert wanted <= targets


def test_an_unknown_word_is_refused() -> None:
    """Name what is known."""
    done = run("--only", "speed")
    assert done.returncode == 2
    assert "['speed']; known are ['cycles'" in done.stderr


def test_a_saver_that_is_not_installed_is_left_out_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name it and what it needs, and what is not judged beside it."""
    monkeypatch.setattr(ConcurrencySave, "needs", ("no_such_module",))
    name = ConcurrencySave.name
    assert name not in [each.name for each in savers()]
    assert absent_savers() == {name: ["no_such_module"]}
    ours = "VersionedModel.save()"
    line = {"store": "sqlite", "measure": "save", "adapter": ours, "times": {ours: 1.0}}
    (verdict,) = judge([line], {"sqlite": absent_savers()})
    assert verdict.reached is None
    assert f"not judged: {name} is not installed" in report([], [verdict])


def test_overlapping_holds_are_found() -> None:
    """Fail on the first instant that two had our lock, and count those of an alternative."""
    good: list[Hold] = [(1.0, 2.0, 0), (2.0, 3.0, 1), (3.5, 4.0, 0)]
    bad: list[Hold] = [(1.0, 2.0, 0), (1.999, 3.0, 1), (2.5, 4.0, 2), (4.0, 5.0, 0)]
    assert count_overlaps("good", "ours", good) == count_overlaps("good", "alternative", good) == 0
    kinds: tuple[Kind, ...] = ("ours", "baseline")
    for kind in kinds:
        with pytest.raises(OverlapError, match="bad"):
            count_overlaps("bad", kind, bad)
    assert count_overlaps("bad", "alternative", bad) == 2


def test_more_holds_than_a_limit_are_found() -> None:
    """Two at once are right, the third begins before one of them has ended."""
    good: list[Hold] = [(1.0, 3.0, 0), (1.5, 2.0, 1), (2.0, 4.0, 2), (3.0, 5.0, 1)]
    assert count_overlaps("good", "ours", good, 2) == 0
    bad = sorted([*good, (2.5, 2.6, 3)])
    assert count_overlaps("bad", "alternative", bad, 2) == 1
    with pytest.raises(OverlapError, match="bad"):
        count_overlaps("bad", "ours", bad, 2)


def test_hand_offs_of_a_limit_are_judged() -> None:
    """Judge each beside the alternatives with the same limit."""

    def line(adapter: str, at_once: int, p50: int, kind: str) -> dict[str, Any]:
        who = {"store": "zookeeper", "adapter": adapter, "kind": kind, "measure": "limits"}
        return {**who, "at_once": at_once, "waiters": 32, "p50_us": p50}

    lines = [
        line("django-distlock, limit=4", 4, 900, "ours"),
        line("kazoo Semaphore, 4", 4, 1000, "alternative"),
        line("kazoo Semaphore, 16", 16, 1000, "alternative"),
    ]
    judged = {verdict.what: (verdict.got, verdict.reached) for verdict in judge(lines)}
    assert judged == {"hand-off p50 / kazoo Semaphore, 4, 32 waiters": (0.9, True)}


def test_row_locks_and_saves_are_judged() -> None:
    """Judge each by what stands beside it, and a hand-off by the one with as many waiters."""

    def line(measure: str, adapter: str, **facts: Any) -> dict[str, Any]:
        return {"store": "postgresql", "measure": measure, "adapter": adapter, **facts}

    row, bare, by_hand = "django-distlock row", "bare FOR UPDATE", "select_for_update()"
    save, plain, other = "VersionedModel.save()", "plain save()", "django-concurrency save()"
    rows = [
        line("cycles", row, times={row: 1.0, bare: 0.9, by_hand: 0.99}),
        line("handoff", row, waiters=2, p50_us=130, statements=2.0),
        line("handoff", bare, waiters=2, p50_us=100),
        line("handoff", row, waiters=8, p50_us=110, statements=2.0),
        line("handoff", bare, waiters=8, p50_us=100),
        line("save", save, times={save: 1.0, plain: 0.88, other: 1.5}),
    ]
    assert {verdict.what: verdict.reached for verdict in judge(rows)} == {
        f"{row}: cycles / {bare}": True,
        f"{row}: cycles / {by_hand}": False,
        f"{row}: hand-off p50 / {bare}, 2 waiters": False,
        f"{row}: hand-off p50 / {bare}, 8 waiters": True,
        f"{save}: save / {plain}": True,
        f"{save}: save / {other}": True,
    }


def test_targets_are_judged_by_their_sign() -> None:
    """Reach one target, miss another, and say by how much."""
    common = {"store": "mariadb", "adapter": "django-distlock", "kind": "ours"}
    rows = [
        {
            **common,
            "measure": "cycles",
            "per_second": 10,
            "times": {"django-distlock": 1.0, "bare statements": 0.68, "django-db-mutex": 4.2},
        },
        {**common, "measure": "fairness", "most_per_least": 1.05, "most": 21, "least": 20},
    ]
    judged = {verdict.what: (verdict.reached, verdict.off_by) for verdict in judge(rows)}
    assert judged == {
        "cycles / bare statements": (False, "-20 %"),
        "cycles / django-db-mutex": (True, "+20 %"),
        "most / least grants": (True, "-5 %"),
    }
    text = report(rows, judge(rows))
    assert "MISSED, -20 %" in text
    assert "reached, +20 %" in text
