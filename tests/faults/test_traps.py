"""Each known trap names tests that show that it does not happen here; these tests exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from django_distlock.testing.contract import base

TESTS = Path(__file__).parents[1]
CONTRACT = Path(base.__file__).parent / "parts"
TABLE = Path(__file__).with_name("traps.md")
PLACE = "contract/"


def rows() -> list[tuple[str, str]]:
    """Return the rows of all tables: a trap, and what stands beside it."""
    found = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] not in ("trap", "invariant", "---"):
            found.append((cells[0], cells[1]))
    return found


SHOWN = {trap: shown.split(", ") for trap, shown in rows() if "::" in shown}


@cache
def names(path: Path) -> set[str]:
    """Return what is tested in a file: functions, and state machines' test cases."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if name.lower().startswith("test")}


def file_of(path: str) -> Path:
    """Return the file that a row means by a path."""
    below = CONTRACT / path.removeprefix(PLACE)
    return below if path.startswith(PLACE) and below.exists() else TESTS / path


@pytest.mark.parametrize("trap", SHOWN)
def test_what_shows_it_exists(trap: str) -> None:
    for node in SHOWN[trap]:
        path, _, name = node.partition("::")
        assert file_of(path).exists(), node
        assert name in names(file_of(path)), node


def test_each_trap_is_told_once_and_is_shown_or_explained() -> None:
    told = rows()
    assert len({trap for trap, _ in told}) == len(told) > 100
    assert all(trap and shown for trap, shown in told)
