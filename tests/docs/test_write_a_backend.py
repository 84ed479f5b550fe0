"""The backend that the how-to writes passes the contract suite, as the how-to says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page
from tests.docs.run_page import PROJECT

PAGE = Page(ROOT / "docs" / "howto" / "write-a-backend.md")


@pytest.mark.timeout(400)
def test_the_backend_of_the_page_keeps_the_contract(tmp_path: Path) -> None:
    """Write the page's files, and run the suite as a reader would."""
    for block in PAGE.blocks():
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    [setting] = [block.text for block in PAGE.blocks() if block.text.startswith("DISTLOCKS")]
    settings = f"from example_settings import *\n\n{setting}"
    (tmp_path / "settings.py").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, PROJECT, ROOT))),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=390,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    [passed] = re.findall(r"^(\d+) passed", done.stdout, re.M)
    assert int(passed) > 150
