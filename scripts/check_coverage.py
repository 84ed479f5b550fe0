"""Merge what the processes of a test run have covered, show what is missed, and hold the floor.

``check_coverage.py TIER`` needs the module ``coverage``, and the data of ``coverage run -m pytest``
in this folder. Lines and branches are judged each by itself: a total of both would let the many
lines hide the branches.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

# Percent, of each by itself, after the short tier of tests and after both. Programs, faults and the
# Locks page are in the long one.
FLOORS = {
    "short": {"lines": 94.0, "branches": 88.0},
    "all": {"lines": 95.0, "branches": 95.0},
}


def coverage(*words: str) -> None:
    """Run a command of coverage; end with its code if it fails."""
    code = subprocess.run([sys.executable, "-m", "coverage", *words], check=False).returncode
    if code:
        sys.exit(f"coverage {words[0]} ended with {code}")


def left_out() -> list[str]:
    """Return what not to count: the backends of stores that cannot be had here; say which."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.servers import missing

    stores = missing()
    for store, why in stores.items():
        print(f"NOT COUNTED: the {store} backend: {why}")
    folders = ",".join(f"django_distlock/backends/{store}/*" for store in stores)
    return [f"--omit={folders}"] if folders else []


def main() -> None:
    """Merge, report and judge."""
    floor = FLOORS[sys.argv[1]]
    omitted = left_out()
    coverage("combine", "--append", "--quiet")
    coverage("report", *omitted)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "coverage.json"
        coverage("json", "--quiet", "-o", str(file), *omitted)
        totals = json.loads(file.read_text())["totals"]
    covered = {
        "lines": 100 * totals["covered_lines"] / totals["num_statements"],
        "branches": 100 * totals["covered_branches"] / totals["num_branches"],
    }
    for what, percent in covered.items():
        print(f"Coverage of {what}: {percent:.2f} % (at least {floor[what]:g} %)")
    below = [what for what, percent in covered.items() if percent < floor[what]]
    if below:
        sys.exit(f"Too few {' and '.join(below)} are covered: see what is missing above.")


if __name__ == "__main__":
    main()
