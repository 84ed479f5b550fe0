"""scripts/setup asks pip for what pip understands, whatever is set up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import ROOT

PYTHON = """#!/bin/sh
echo "$@" >> "$ASKED"
"""


@pytest.mark.parametrize(
    ("words", "extras"),
    [
        (("demo",), set()),
        (("bench", "sqlite"), set()),
        (("bench", "sqlite", "etcd"), {"etcd"}),
    ],
)
def test_pip_is_asked_for_extras_that_there_are(
    words: tuple[str, ...], extras: set[str], tmp_path: Path
) -> None:
    """Run it with a Python that writes down what it is asked, and nothing to install."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("scripts/setup", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("etcd", "openssl", "pgbouncer", ".venv/bin/python"):
        program = tmp_path / name
        program.write_text(PYTHON)
        program.chmod(0o755)
    asked = tmp_path / "asked"
    environment = os.environ | {"ASKED": str(asked), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [tmp_path / "scripts" / "setup", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (install,) = (line for line in asked.read_text().splitlines() if " -e " in line)
    wanted = Requirement(f"project{install.split(' -e .')[1].split(' ')[0]}")
    assert wanted.extras >= extras
    assert "" not in wanted.extras
