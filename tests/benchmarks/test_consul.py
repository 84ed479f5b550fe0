"""The benchmarks run on Consul, and count there what they say they count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.targets import judge
from tests.benchmarks.test_harness import run


def test_a_quick_run_counts_the_requests_of_a_cycle(tmp_path: Path) -> None:
    """Measure cycles for a moment, on a real server: two requests each."""
    file = tmp_path / "out.json"
    words = ("--quick", "--rounds", "1", "--kinds", "ours,baseline", "--json", str(file))
    done = run("--stores", "consul", "--only", "cycles", *words)
    assert done.returncode == 0, done.stderr
    rows = {row["adapter"]: row for row in json.loads(file.read_text())["results"]}
    modes = {"django-distlock, shared", "django-distlock, limit=4"}
    assert set(rows) == {"django-distlock", "bare calls", *modes}
    assert all(1.8 <= row["statements"] <= 3.0 for row in rows.values())
    assert all(row["per_second"] > 0 for row in rows.values())
    assert "cycles / bare calls" in done.stdout


def row(measure: str, adapter: str, **figures: Any) -> dict[str, Any]:
    """Return a line of a result on Consul."""
    kind = "ours" if adapter == "django-distlock" else "alternative"
    return {"measure": measure, "store": "consul", "adapter": adapter, "kind": kind, **figures}


def test_the_targets_of_consul_are_judged() -> None:
    """The hand-off with 8 waiters and more, the requests with any number."""
    rows = [
        row("cycles", "django-distlock", times={"py-consul": 2.9, "bare calls": 0.95}),
        row("handoff", "django-distlock", waiters=2, p50_us=900, statements=5.0),
        row("handoff", "py-consul", waiters=2, p50_us=1000, statements=20.0),
        row("handoff", "django-distlock", waiters=8, p50_us=200, statements=5.2),
        row("handoff", "py-consul", waiters=8, p50_us=1000, statements=20.0),
        row("fairness", "django-distlock", most_per_least=1.2),
    ]
    judged = {verdict.what: (verdict.got, verdict.reached) for verdict in judge(rows)}
    assert judged == {
        "cycles / py-consul": (2.9, False),
        "cycles / bare calls": (0.95, True),
        "requests an acquisition, 2 waiters": (5.0, True),
        "hand-off p50 / py-consul, 8 waiters": (0.2, True),
        "requests an acquisition, 8 waiters": (5.2, False),
        "most / least grants": (1.2, False),
    }
