"""Looking at all nodes and cleaning them: what follows from their answers, sent by hand."""

from __future__ import annotations

from typing import Any

import pytest

from django_distlock.backends.redlock.algorithm import Names
from django_distlock.backends.redlock.inspect import clean, page
from django_distlock.backends.redlock.rounds import QuorumError
from django_distlock.core.values import Cleaned, CleanPolicy

NAMES = Names("distlock:1", 60_000)
NODES = ("a", "b", "c")
POLICY = CleanPolicy(older_than=60.0, dry_run=False, batch=10)


def value(owner: str, name: str) -> bytes:
    """Return what a node stores of a held lock."""
    return f"{60000:013}{5:016}{7:016}{0:016}{owner}\n{name}\n".encode()


def ended(operation: Any, answers: list[Any]) -> Any:
    """Send the answers of the only round, and return what follows."""
    next(operation)
    with pytest.raises(StopIteration) as stop:
        operation.send(answers)
    return stop.value.value


def listed(following: bytes, *locks: bytes) -> list[Any]:
    """Return a node's answer to the question for a page."""
    return [[following, 0, *(word for key in locks for word in (key, 900, value("o", "x")))]]


def test_a_page_ends_where_the_shortest_of_the_nodes_ends() -> None:
    operation = page(NAMES, "-", 1.0, NODES)
    answers = [listed(b"(k2", b"k1", b"k2"), listed(b"", b"k1", b"k2", b"k3"), listed(b"", b"k1")]
    after, found = ended(operation, answers)
    assert after == "(k2"
    assert [key for key, _ in found] == [b"k1", b"k2"]


def test_a_page_without_one_of_the_nodes() -> None:
    operation = page(NAMES, "-", 1.0, NODES)
    broken = value("", "free")
    answers = [listed(b"", b"k1"), [["", 0, b"k9", 5, broken]], TimeoutError("no answer")]
    after, found = ended(operation, answers)
    assert after == ""
    # Held on one, and perhaps on the silent one: it is shown rather than not.
    assert [key for key, _ in found] == [b"k1"]


def test_a_page_needs_a_quorum() -> None:
    operation = page(NAMES, "-", 1.0, NODES)
    next(operation)
    with pytest.raises(QuorumError, match="1 of 3 nodes answered"):
        operation.send([listed(b""), TimeoutError("x"), [RuntimeError("y")]])


def test_cleaning_goes_from_node_to_node() -> None:
    seen = ended(clean(NAMES, POLICY, "", 1.0, NODES), [[[b"k5", 1, 10]], None, None])
    assert seen == Cleaned(removed=1, seen=10, cursor="0 0 k5")
    seen = ended(clean(NAMES, POLICY, "0 0 k5", 1.0, NODES), [[[b"", 0, 3]], None, None])
    assert seen == Cleaned(removed=0, seen=3, cursor="1 0 -")
    seen = ended(clean(NAMES, POLICY, "2 0 -", 1.0, NODES), [None, None, [[b"", 2, 2]]])
    assert seen == Cleaned(removed=2, seen=2, cursor=None)


def test_a_node_that_fails_is_left_to_the_next_cleaning() -> None:
    seen = ended(clean(NAMES, POLICY, "1 0 -", 1.0, NODES), [None, TimeoutError("x"), None])
    assert seen == Cleaned(removed=0, seen=0, cursor="2 1 -")
    operation = clean(NAMES, POLICY, "2 1 -", 1.0, NODES)
    next(operation)
    with pytest.raises(QuorumError):
        operation.send([None, None, [RuntimeError("y")]])
