"""Reading who imports whom from the source, without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import django_distlock

__all__ = ["PACKAGE", "ROOT", "Import", "imports", "modules"]

PACKAGE = "django_distlock"
ROOT = Path(django_distlock.__file__).parent


@dataclass(frozen=True)
class Import:
    """One import: who, of what, and whether it is inside a function or for the type checker."""

    importer: str
    imported: str
    inner: bool
    typing: bool


def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name, the package's own left out."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> Iterator[Import]:
    """Yield every import of every module; our own modules without the package's name."""
    known = modules()
    for name, path in known.items():
        home = name if path.name == "__init__.py" else name.rpartition(".")[0]
        reader = _Reader(name, f"{PACKAGE}.{home}".rstrip("."), set(known))
        reader.visit(ast.parse(path.read_text("utf-8")))
        yield from reader.found


class _Reader(ast.NodeVisitor):
    def __init__(self, name: str, home: str, known: set[str]) -> None:
        self.name = name
        self.home = home
        self.known = known
        self.found: list[Import] = []
        self._functions = 0
        self._typing = 0

    def _add(self, dotted: str) -> None:
        self.found.append(Import(self.name, dotted, self._functions > 0, self._typing > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add_ours_or(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.home.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            ours = whole.removeprefix(f"{PACKAGE}.")
            self._add_ours_or(whole if whole.startswith(PACKAGE) and ours in self.known else base)

    def _add_ours_or(self, dotted: str) -> None:
        ours = dotted == PACKAGE or dotted.startswith(f"{PACKAGE}.")
        self._add("." + dotted[len(PACKAGE) + 1 :] if ours else dotted)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        checking = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        self._typing += checking
        for child in node.body:
            self.visit(child)
        self._typing -= checking
        for child in node.orelse:
            self.visit(child)
