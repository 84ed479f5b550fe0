"""The engine's own cost is measured beside an older one, where the checkout's history has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.measures.engine import BASELINE, CYCLES

from .test_harness import ROOT, run


def test_the_engine_is_measured_beside_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    done = run("--only", "engine", "--quick", "--json", str(file))
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text("utf-8"))["results"]
    found = {(row["adapter"], row["cycle"]): row for row in rows}
    asked = subprocess.run(["git", "cat-file", "-e", BASELINE], cwd=ROOT, check=False)
    engines = ["ours"] if asked.returncode else ["ours", BASELINE]
    cycles = {(engine, cycle) for engine in engines for cycle in CYCLES}
    assert set(found) == cycles | {("threading.Lock", "threading.Lock")}
    for row in rows:
        assert row["microseconds"] > 0
        assert ("of_baseline" in row) is (row["adapter"] != "threading.Lock" and len(engines) > 1)
    assert "a lock in memory, one core" in done.stdout
