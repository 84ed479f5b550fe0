"""Growth is measured at each of its sizes, and drawn. How fast anything is, is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measures.growth import STRIDE
from tests.benchmarks.test_harness import ROOT, check_hand_overs, run
from tests.servers import chosen

STORES = [store for store in ("sqlite", "redis") if store in chosen()]
MEASURES = ("growth-waiters", "growth-keys", "growth-leases")


@pytest.mark.parametrize("store", STORES)
def test_growth_gives_all_its_numbers(store: str, tmp_path: Path) -> None:
    """Measure waiters, names and leases for a moment, and draw them."""
    file, plots = tmp_path / "new" / "out.json", tmp_path / "plots"
    words = ("--quick", "--rounds", "1", "--leases", "40", "--kinds", "ours", "--json", str(file))
    done = run("--stores", store, "--only", ",".join(MEASURES), *words, "--plots", str(plots))
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    rows = {
        name: [row for row in written["results"] if row["measure"] == name] for name in MEASURES
    }
    assert {row["adapter"] for row in written["results"]} == {"django-distlock"}
    _check_waiters(rows["growth-waiters"])
    keys = rows["growth-keys"]
    assert [row["keys"] for row in keys] == [1, 100]
    assert all(row["per_second"] > 0 and row["rounds"] == 1 for row in keys)
    leases = rows["growth-leases"]
    assert [row["leases"] for row in leases] == [1, 40]
    for row in leases:
        assert row["cpu_ms_per_second"] >= 0
        assert row["bytes_per_lease"] > 100
        assert {"least_remaining", "lost", "missing_in_store", "rss_mb"} <= row.keys()
    assert ("store_bytes_per_lock" in leases[0]) == (store == "redis")
    assert sorted(path.name for path in plots.iterdir()) == [
        f"{store}-growth.png",
        f"{store}-growth.svg",
    ]
    for word in ("names", "CPU ms/s", "bytes/lease", "statements each"):
        assert word in done.stdout


def _check_waiters(rows: list[dict[str, Any]]) -> None:
    assert [(row["waiters"], row["processes"]) for row in rows] == [(2, 2), (8, 4)]
    check_hand_overs(rows)
    assert all(row["p99_us"] >= row["p50_us"] > 0 for row in rows if row["samples"])


def test_errors_of_many_waiters_are_counted_or_end_the_run() -> None:
    """Let six threads of two processes fail once each; see that no process is left over."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.benchmarks.shaky"],
        cwd=ROOT, text=True, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["failures"] == 6
    assert sum(seen["grants"]) > 0
    assert len(seen["grants"]) == 6
    assert "KeyError: 'shaky'" in seen["unforgiven"]
    assert seen["left_over"] == 0


def test_each_name_gets_its_turn() -> None:
    """Come back to a name after all others only, whatever their number in a run."""
    for names in (1, 100, 1000, 100_000):
        assert len({(STRIDE * turn) % names for turn in range(names)}) == names
