"""gevent: greenlets are holders of their own; leases are renewed, or lost when nothing can run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("under_gevent.py")


def test_greenlets_take_turns_and_are_told_of_a_loss(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "db.sqlite3")],
        cwd=PROGRAM.parents[2],
        env={"PYTHONPATH": str(PROGRAM.parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
