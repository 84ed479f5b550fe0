"""What the engine costs: cycles of a lock in memory, beside those of an older engine."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..adapter import Kind
from ..bench import Bench, Row

__all__ = ["engine"]

ROOT = Path(__file__).parents[2]
BASELINE = "3fde98b"
"""The commit that the cost of the engine is compared with."""
WARM_UP = 2  # rounds that do not count
KINDS: dict[str, Kind] = {"ours": "ours", BASELINE: "alternative", "threading.Lock": "baseline"}
CYCLES = ("with", "acquire, release", "async with")


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    kind: Kind


def engine(bench: Bench) -> list[Row]:
    """Measure, in slices of three processes by turns: ours, the baseline, a lock of Python's."""
    if bench.store.name != "sqlite":
        return []  # there is no store in it: once is enough
    bench.say("the engine")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(_process(ROOT))
        older = stack.enter_context(_process(folder)) if _checked_out(folder) else None
        turns = [(name, process, cycle) for cycle in CYCLES for name, process in _both(ours, older)]
        turns.append(("threading.Lock", ours, "threading.Lock"))
        figures: dict[tuple[str, str], list[float]] = {}
        for number in range(WARM_UP + bench.rounds):
            for name, process, cycle in turns:
                took = _asked(process, cycle)
                if number >= WARM_UP:
                    figures.setdefault((name, cycle), []).append(took)
    return [
        bench.row(
            "engine",
            _Subject(name, KINDS[name]),
            cycle=cycle,
            microseconds=round(median(took), 2),
            **_beside(took, figures.get((BASELINE, cycle))),
        )
        for (name, cycle), took in figures.items()
    ]


def _both(
    ours: subprocess.Popen[str], older: subprocess.Popen[str] | None
) -> list[tuple[str, subprocess.Popen[str]]]:
    return [("ours", ours)] if older is None else [("ours", ours), (BASELINE, older)]


def _beside(took: list[float], baseline: list[float] | None) -> dict[str, float]:
    return {} if baseline is None else {"of_baseline": round(median(took) / median(baseline), 2)}


def _checked_out(folder: Path) -> bool:
    """Write the package of the baseline to a folder, if the history of the checkout has it."""
    done = subprocess.run(
        ["git", "archive", BASELINE, "django_distlock"], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        print(f"left out: the engine of {BASELINE}: no such commit here", file=sys.stderr)
        return False
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return True


@contextmanager
def _process(package: Path) -> Iterator[subprocess.Popen[str]]:
    program = str(ROOT / "benchmarks" / "engine_cycle.py")
    process = subprocess.Popen(
        [sys.executable, "-P", program],
        env={"PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _asked(process: subprocess.Popen[str], cycle: str) -> float:
    """Have a process run a slice of cycles; return the microseconds of one."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{cycle}\n")
    process.stdin.flush()
    return float(process.stdout.readline())
