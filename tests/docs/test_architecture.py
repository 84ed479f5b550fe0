"""The architecture page tells the way that a call really goes, and the layers as they are."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import django
import pytest

from django_distlock import lock
from tests.docs.pages import ROOT, Page
from tests.docs.test_reference import table

PACKAGE = ROOT / "django_distlock"
PAGE = Page(ROOT / "docs" / "explanation" / "architecture.md")


MOST_FILES = {"locmem": 7, "table": 9}


@pytest.mark.parametrize("kind", ["locmem", "table"])
def test_the_way_to_the_store_is_that_of_the_page(kind: str) -> None:
    """Watch a call: the files of ours on the stack, when the store is asked, are the page's."""
    section = PAGE.text.split("## From")[1].split("The statements of each")[0]
    steps = re.split(r"^\d\. ", section, flags=re.M)[1:]
    named = [re.findall(r"\]\(\.\./\.\./django_distlock/([\w/]+\.py)\)", step) for step in steps]
    assert all(named)
    ours = {
        "locmem": [*chain(*named[:4]), "backends/locmem.py"],
        "table": [each for each in chain(*named) if each != "backends/locmem.py"],
    }
    way: list[str] = []

    def watch(frame: FrameType | None, event: str, argument: Any) -> None:
        assert frame is not None
        asked = "try_acquire" if kind == "locmem" else "execute"
        home = PACKAGE if kind == "locmem" else Path(django.__file__).parent
        code = frame.f_code
        if way or event != "call" or code.co_name != asked:
            return
        if not Path(code.co_filename).is_relative_to(home):
            return
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                way.insert(0, path.relative_to(PACKAGE).as_posix())
            frame = frame.f_back

    alias = "locmem" if kind == "locmem" else _table_alias()
    sys.setprofile(watch)
    try:
        lease = lock("the way to the store", using=alias, wait=0).acquire()
    finally:
        sys.setprofile(None)
    assert lease is not None
    lease.release()
    assert list(dict.fromkeys(way)) == ours[kind]
    assert len(ours[kind]) <= MOST_FILES[kind]


def _table_alias() -> str:
    from django_distlock import locks

    return next(alias for alias in locks if type(locks[alias]).__name__ == "TableBackend")


def test_the_layers_are_those_of_the_page() -> None:
    """Find a module that no layer has, and an import that goes upwards."""
    level: dict[str, int] = {}
    for height, (_, modules, _) in enumerate(table(PAGE, "The layers")):
        for module in re.findall(r"`([\w/]+)`", modules):
            level[module.replace("/", ".")] = height
    seen = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in ("migrations", "testing", "__init__") or parts == ("backends", "__init__"):
            continue
        if parts[-1] == "__init__" and not _imports(path, parts):
            continue  # a folder
        module = _layered(".".join(parts), level)
        seen.add(module)
        for imported in _imports(path, parts):
            if (lower := _layered(imported, level, default=module)) != module:
                assert level[lower] <= level[module], f"{module} imports {lower}"
    assert seen == set(level)


def _layered(module: str, level: dict[str, int], default: str = "") -> str:
    """Return the module, or the package around it, that the page names."""
    layered = module
    while layered and layered not in level:
        layered = layered.rpartition(".")[0]
    assert layered or default, f"{module} is in no layer of {PAGE}"
    return layered or default


def _imports(path: Path, parts: tuple[str, ...]) -> list[str]:
    """Return the package's modules that one imports, but for the type checker's sake."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in typing:
            above = parts[: len(parts) - node.level]
            if node.module:
                found.append(".".join([*above, node.module]))
            else:
                found += [".".join([*above, alias.name]) for alias in node.names]
    return found


def test_the_package_imports_no_driver() -> None:
    """Import it in a process of its own, and look what came with it."""
    drivers = ["sqlite3", "psycopg", "MySQLdb", "redis", "kazoo", "httptools"]
    code = f"import django_distlock, sys; print([m for m in {drivers} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        # Else coverage, where it is measured, comes with modules of its own.
        env={k: v for k, v in os.environ.items() if k != "COVERAGE_PROCESS_CONFIG"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
