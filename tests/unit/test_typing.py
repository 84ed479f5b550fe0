"""What users' type checkers say of the public API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .graph import ROOT

SAMPLES = Path(__file__).with_name("typing_samples.py")


def mypy(path: Path) -> tuple[int, str]:
    """Run mypy on one file with the project's settings; return its exit code and words."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", str(path)]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, timeout=110)
    return done.returncode, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "py.typed").exists()


def test_the_public_api_types_as_promised() -> None:
    code, said = mypy(SAMPLES)
    assert code == 0, said


@pytest.mark.parametrize(
    ("promise", "mistake", "error"),
    [
        ("assert_type(lease, Lease | None)", "assert_type(lease, Lease)", "[assert-type]"),
        ("build(5)  # type: ignore[arg-type]", "build(5)", "[arg-type]"),
        ("lease.check()", "lease.check()  # type: ignore[call-arg]", "[unused-ignore]"),
    ],
)
def test_a_broken_promise_would_be_seen(
    tmp_path: Path, promise: str, mistake: str, error: str
) -> None:
    text = SAMPLES.read_text("utf-8")
    assert promise in text
    broken = tmp_path / "broken_samples.py"
    broken.write_text(text.replace(promise, mistake, 1), "utf-8")
    code, said = mypy(broken)
    assert code == 1, said
    assert error in said
