"""Messages are written in the words of the field, which people search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

PACKAGE = ROOT / "django_distlock"

BANNED = re.compile(
    r"\b(anew|nobody|somebody|anybody|for ever|besides|all the same|dead locks?|waiting rooms?"
    r"|hand-?overs?|lapsed?|vanished|no longer sure|not broken|freed by force|who is not)\b",
    re.IGNORECASE,
)


def _messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts in a module that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_no_message_is_in_the_words_of_a_few() -> None:
    seen, found = 0, []
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in _messages(path):
            seen += 1
            found += [f"{path.name}:{line}: {word[0]}" for word in BANNED.finditer(text)]
    assert seen > 1000
    assert found == []


def test_the_words_are_found() -> None:
    assert BANNED.search("Somebody else holds it")
    assert not BANNED.search("Another request holds it")
