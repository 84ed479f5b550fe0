"""The benchmarks run on Consul, and count there what they say they count."""

from __future__ import annotations

import json
from pathlib import Path

from tests.benchmarks.test_harness import run


def test_a_quick_run_counts_the_requests_of_a_pair(tmp_path: Path) -> None:
    """Measure pairs for a moment, on a real server: two requests each."""
    file = tmp_path / "out.json"
    words = ("--quick", "--rounds", "1", "--kinds", "ours,floor", "--json", str(file))
    done = run("--stores", "consul", "--only", "pairs", *words)
    assert done.returncode == 0, done.stderr
    rows = {row["adapter"]: row for row in json.loads(file.read_text())["results"]}
    assert set(rows) == {"django-distlock", "bare calls"}
    assert all(1.8 <= row["statements"] <= 3.0 for row in rows.values())
    assert all(row["per_second"] > 0 for row in rows.values())
    assert "pairs / bare calls" in done.stdout
