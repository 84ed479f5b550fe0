"""The measurement of the Locks page runs. How fast the page is, is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_the_page(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    words = ("--locks", "30", "--rounds", "1", "--json", str(file))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.adminpage", *words],
        cwd=ROOT, text=True, capture_output=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert figures["refresh kB"] > 10
    assert figures["hanging s"] >= 2
    assert figures["statements of the request"] < 10
    assert "30 locks over 3 stores" in done.stdout
