"""Plant each defect of `defects.toml` into a copy of the code, and show which test finds it.

    python -m tests.planted [WORD]

Only those are planted whose description has the word. Exits with 1 if one was not found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.defects import Defect, defects

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 900  # seconds that the tests of one defect may take
KEPT = (".consul", ".mysql")  # servers that were downloaded


def main() -> None:
    """Plant one after the other."""
    word = "".join(sys.argv[1:2])
    chosen = [each for each in defects() if word in each.what]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy.chmod(0o755)  # servers that are not started as root look into it, too
        copy_to(copy)
        for each in chosen:
            begun = time.monotonic()
            found = found_by(each, copy)
            missed += found is None
            took = time.monotonic() - begun
            print(f"| {each.what} | {found or 'NOTHING'} | {took:.0f} s |", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} were found")
    sys.exit(missed > 0)


def copy_to(folder: Path) -> None:
    """Copy what git knows of, as it stands in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for name in KEPT:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)


def found_by(defect: Defect, folder: Path) -> str | None:
    """Return the first test that fails with the defect in the code, None if none does."""
    path = folder / defect.file
    good = path.read_text()
    path.write_text(good.replace(defect.old, defect.new))
    options = ["-q", "-x", "-rf", "-n", "3", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    options += ["--ignore", "tests/unit/test_planted.py"]  # it says only that the edit was made
    if "--tier" not in defect.tests:
        options += ["--tier", "short"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *defect.tests],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder), "DISTLOCK_TEST_STORES": defect.stores},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST,
        )
    finally:
        path.write_text(good)
    found = re.search(r"^FAILED (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if found is None and done.returncode != 0:
        sys.exit(f"{defect.what}: the tests could not be run\n{done.stdout}{done.stderr}")
    return found[1] if found else None


if __name__ == "__main__":
    main()
