"""How the tests run a page's examples: each page in a process and a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page

Run = Callable[[Page], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_page(tmp_path: Path) -> Run:
    """Return a function that runs a page's examples and returns how that went."""
    folder = tmp_path / "project"
    folder.mkdir()
    environment = {key: value for key, value in os.environ.items() if "DJANGO" not in key}

    def run(page: Page) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "tests.docs.run_page", str(page.path)],
            cwd=folder,
            env=environment | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return run
