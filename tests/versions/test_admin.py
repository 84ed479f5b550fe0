"""The admin, in a project of its own: the tests of `adminsite` run as a user's would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_a_project_with_the_admin_pass() -> None:
    settings = "--settings=tests.versions.adminsite.settings"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "django",
            "test",
            settings,
            "tests.versions.adminsite",
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 12 tests" in done.stderr
