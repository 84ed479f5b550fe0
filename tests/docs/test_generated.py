"""The generated parts of the documentation are what the code says now."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.docs.pages import ROOT

SCRIPT = ROOT / "docs" / "generate.py"


def generator() -> ModuleType:
    """Return docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date() -> None:
    """Run what a developer runs. The remedy is ``python docs/generate.py``."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(SCRIPT), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run python docs/generate.py:\n{done.stdout}{done.stderr}"


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    """See a cell that somebody edited, and mend it."""
    page = tmp_path / "backends.md"
    text = (ROOT / "docs" / "reference" / "backends.md").read_text(encoding="utf-8")
    page.write_text(text.replace("| `scope` | cluster |", "| `scope` | galaxy |"), encoding="utf-8")
    assert generator().stale(tmp_path) == {page: text}
    page.write_text(text, encoding="utf-8")
    assert generator().stale(tmp_path) == {}


def test_the_table_has_every_backend_and_flag() -> None:
    """Find a backend or a flag that the table does not know."""
    from django_distlock.backends.base import BaseLockBackend

    module = generator()
    ours = {
        path.parent.name if path.stem in ("__init__", "backend") else path.stem
        for path in (ROOT / "django_distlock" / "backends").glob("**/*.py")
        if path.stem not in ("base", "flows")
        and re.search(r"^class \w+Backend\(\w+\):", path.read_text(encoding="utf-8"), re.M)
    }
    modules = {backend.__module__.removesuffix(".backend") for backend in module.BACKENDS}
    assert {each.rpartition(".")[2] for each in modules} == ours
    flags = set(BaseLockBackend.__annotations__) - {"store_errors", "options"}
    table = module.flags()
    assert {flag for flag in flags if f"`{flag}`" not in table} == set()
