"""The public names: exactly these, and each module's own list is true."""

from __future__ import annotations

import ast
import importlib

import pytest

import django_distlock
from django_distlock import exceptions

from .graph import PACKAGE, modules

PUBLIC = {
    "FenceMarkField",
    "Fenced",
    "FencedManager",
    "FencedQuerySet",
    "FencingTokenField",
    "Holder",
    "Leader",
    "Lease",
    "Leases",
    "Lock",
    "LockGroup",
    "LockInfo",
    "UNSET",
    "current_lease",
    "leader",
    "lock",
    "lock_all",
    "lock_for",
    "locks",
    "requires_fence",
    *(name for name in exceptions.__all__ if name.endswith("Error")),
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(django_distlock.__all__) == PUBLIC
    assert len(django_distlock.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert hasattr(django_distlock, name)


def test_the_version_is_told() -> None:
    assert django_distlock.__version__.count(".") == 2


def importable() -> list[str]:
    """Return the modules that can be imported here, where no admin is installed."""
    others = ("migrations", "testing", "management", "contrib", "admin")
    return sorted(name for name in modules() if name and not name.startswith(others))


@pytest.mark.parametrize("name", importable())
def test_what_a_module_lists_is_there_and_documented(name: str) -> None:
    module = importlib.import_module(f"{PACKAGE}.{name}")
    assert module.__doc__
    first = module.__doc__.strip().splitlines()[0]
    assert first.endswith("."), "the first line is a sentence"
    listed = getattr(module, "__all__", [])
    assert len(listed) == len(set(listed))
    for each in listed:
        assert hasattr(module, each), f"{each} is listed, but not there"
    tree = ast.parse(modules()[name].read_text("utf-8"))
    documented = {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    for each in listed:
        if each in documented:
            assert documented[each], f"{each} has no docstring"
