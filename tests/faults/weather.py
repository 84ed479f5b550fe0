"""Letting a storm pass, and what has to hold after each, whatever the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.faults import storm
from tests.faults.judging import NO_HEIRS, Heirs, judge, read
from tests.faults.shares import SHARE

SHORT = 4.0
"""Seconds of a storm in the suite."""
SECONDS = float(os.environ.get("DISTLOCK_STORM_SECONDS", "0")) or max(SHORT, SHARE)
"""For how long it storms: as long as is said, or its share of the minutes of a long run."""
SWITCHES = 10
"""Processes that have to be woken, one after the other, before a dead holder's lock is taken."""


def begin(alias: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Begin a storm over the locks of an alias."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.storm", alias, str(SECONDS), str(folder)],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def end(
    run: subprocess.Popen[str],
    folder: Path,
    grace: float,
    *,
    least: int = storm.GRANTS,
    heirs: Heirs = NO_HEIRS,
    unreached: int = 0,
) -> None:
    """Wait for the end of a storm; assert that nothing was wrong, and that it was one.

    ``least`` is how many grants there have to be: fewer where the dead are noticed later.
    ``unreached`` is how many calls may have failed, as servers were away and the rest was late.
    """
    output, _ = run.communicate()
    assert run.returncode == 0, [line for line in read(folder / "log") if line["what"] == "died"]
    told = json.loads(output)
    late = SWITCHES * told["late"] + told["stood_still"]
    seen = judge(read(folder / "log"), storm.TTL + grace + late, heirs)
    print(f"\n{told['hits']} {seen}, late by {told['late']:.3f} s,")
    print(f"the store by {told['stood_still']:.3f} s")
    assert seen.faults == []
    assert len(seen.unreached) <= unreached, seen.unreached
    assert set(told["codes"]) == {0}
    assert set(told["hits"]) == set(storm.HITS)
    assert seen.grants >= least
