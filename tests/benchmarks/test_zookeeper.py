"""The benchmarks run on ZooKeeper, and count there what they say they count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.targets import judge
from tests.benchmarks.test_harness import run
from tests.servers import chosen


@pytest.mark.parametrize("store", [store for store in ("zookeeper",) if store in chosen()])
def test_a_quick_run_counts_the_packets_of_a_cycle(tmp_path: Path, store: str) -> None:
    """Measure cycles for a moment, on a real server."""
    file = tmp_path / "out.json"
    words = ("--quick", "--rounds", "1", "--kinds", "ours,baseline", "--json", str(file))
    done = run("--stores", store, "--only", "cycles", *words)
    assert done.returncode == 0, done.stderr
    cycles = {row["adapter"]: row for row in json.loads(file.read_text())["results"]}
    modes = {"django-distlock, shared", "django-distlock, limit=4"}
    assert set(cycles) == {"django-distlock", "bare, kazoo calls", *modes}
    for row in cycles.values():
        assert 2.8 <= row["statements"] <= 3.5  # and now and then one for the session
        assert row["per_second"] > 0


def row(measure: str, adapter: str, **figures: Any) -> dict[str, Any]:
    """Return a line of a result on ZooKeeper."""
    kind = "ours" if adapter == "django-distlock" else "alternative"
    return {"measure": measure, "store": "zookeeper", "adapter": adapter, "kind": kind, **figures}


def test_the_targets_of_zookeeper_are_judged() -> None:
    rows = [
        row("handoff", "django-distlock", waiters=2, p50_us=800, statements=4.0),
        row("handoff", "kazoo Lock", waiters=2, p50_us=1000, statements=5.0),
        row("handoff", "django-distlock", waiters=8, p50_us=800, statements=5.1),
        row("handoff", "kazoo Lock", waiters=8, p50_us=1000, statements=6.0),
        row("fairness", "django-distlock", most_per_least=1.0),
    ]
    judged = {verdict.what: (verdict.got, verdict.reached) for verdict in judge(rows)}
    assert judged == {
        "hand-off p50 / kazoo Lock, 2 waiters": (0.8, False),
        "packets an acquisition, 2 waiters": (4.0, True),
        "hand-off p50 / kazoo Lock, 8 waiters": (0.8, True),
        "packets an acquisition, 8 waiters": (5.1, False),
        "most / least grants": (1.0, True),
    }
