"""Messages, docstrings and pages are in the words that people search for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Page, pages

PACKAGE = ROOT / "django_distlock"

BANNED = re.compile(
    r"\b(anew|nobody|somebody|anybody|for ever|besides|all the same|dead locks?|waiting rooms?"
    r"|hand-?overs?|hand(?:s|ed)? over|(?:in|of the) line of waiters|stands? in (?:the )?line"
    r"|places? in (?:the )?line|lapsed?|vanished|no longer sure|not broken|freed by force"
    r"|who is not|(?:both|either|two) worlds?)\b",
    re.IGNORECASE,
)


HEADLESS = re.compile(
    r"(?:(?<=[.;:] )|^)[Ww]ho (?!holds|leads|force-releases|releases)\w+(?![^.]*[?:])|\b(he|him)\b"
)
"""A sentence about "who waits", or a process that is a "he": name the claim, waiter or process."""


def _texts(path: Path, *, docstrings: bool) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, or its other texts, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or (id(node) in alone) is not docstrings:
            continue
        if isinstance(node.value, str):
            yield node.lineno, node.value


def _found(paths: list[Path], *, docstrings: bool) -> tuple[int, list[str]]:
    seen, found = 0, []
    for path in paths:
        for line, text in _texts(path, docstrings=docstrings):
            seen += 1
            said = " ".join(text.split())
            words = [*BANNED.finditer(said), *HEADLESS.finditer(said)]
            found += [f"{path.name}:{line}: {word[0]}" for word in words]
    return seen, found


def test_the_messages() -> None:
    seen, found = _found(sorted(PACKAGE.rglob("*.py")), docstrings=False)
    assert seen > 1000
    assert found == []


def test_the_docstrings() -> None:
    seen, found = _found(sorted(PACKAGE.rglob("*.py")), docstrings=True)
    assert seen > 1500
    assert found == []


METAPHORS = re.compile(
    r"(?:Async|_Loop)?(?:Room|Door|Line|Ring|Wire|Course|Sight|Looks?|Looking|World|Crowd|Cover|Visit|Place)s?"
)
"""What classes and modules are not called: the field has a term for each of these."""


def test_the_names_of_classes_and_modules() -> None:
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes = [each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
        names += [(path.name, name) for name in (path.stem.title(), *classes)]
    assert len(names) > 500
    assert [each for each in names if METAPHORS.fullmatch(each[1])] == []


def test_no_two_stores_have_a_class_of_one_name() -> None:
    """So that a name in a traceback or a search says which store it is of."""
    names = [
        node.name
        for path in sorted((PACKAGE / "backends").rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert len(names) > 100
    assert sorted({name for name in names if names.count(name) > 1}) == []


CHANGELOG, CONTRIBUTING, SECURITY = (
    Page(ROOT / f"{name}.md") for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")
)


@pytest.mark.parametrize("page", [*pages(), CHANGELOG, CONTRIBUTING, SECURITY], ids=str)
def test_the_pages(page: Page) -> None:
    """Names in code are spared, such as those of measurements."""
    lines = ((number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)) for number, line in page.prose())
    said = [each for each in lines if not each[1].startswith("#")]
    assert [(n, word[0]) for n, line in said for word in BANNED.finditer(line)] == []
    assert [(n, word[0]) for n, line in said for word in HEADLESS.finditer(line)] == []


SEARCHED = (
    *("advisory lock", "at-most-once", "CAP", "clock skew", "compare-and-swap", "consensus"),
    *("critical section", "cron", "deadlock", "distributed lock", "failover", "fencing token"),
    *("FIFO", "gap lock", "heartbeat", "idempotency key", "isolation level", "leader election"),
    *("lease", "mutual exclusion", "optimistic lock", "orphaned lock", "partition", "PgBouncer"),
    *("phantom", "quorum", "Raft", "re-entrant", "Redlock", "row lock", "split brain"),
    *("starvation", "thundering herd", "ttl", "watchdog"),
)


@pytest.mark.parametrize("term", SEARCHED)
def test_what_people_search_for_is_found(term: str) -> None:
    assert any(term.lower() in page.text.lower() for page in pages())


def test_the_words_are_found() -> None:
    assert BANNED.search("Somebody else holds it")
    assert not BANNED.search("Another request holds it")
    assert HEADLESS.search("The lock is free. Who waits is woken.")
    assert not HEADLESS.search("Who holds it?")
