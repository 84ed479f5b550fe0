"""Locks released anywhere in nested blocks, of two databases, in a `TestCase` and outside one.

A lock is free as soon as the outermost block of each database that was open at its release has
ended, however it ended, and not before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from django.db import connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_distlock import lock, locks
from tests.backends.tools import LOCMEM, Undo, lock_alias, soon

ALIAS = "nesting"
DATABASES = ("default", "memory")
PLACES = itertools.count()


@dataclass(frozen=True)
class Block:
    """An `atomic()`, with what happens in it, and how it ends."""

    database: str
    savepoint: bool
    end: str
    within: list[Step]


Step: TypeAlias = "Block | str"

STEPS: st.SearchStrategy[list[Step]] = st.recursive(
    st.lists(st.just("lock"), max_size=2),
    lambda within: st.lists(
        st.just("lock")
        | st.builds(
            Block,
            database=st.sampled_from(DATABASES),
            savepoint=st.booleans(),
            end=st.sampled_from(["commit", "error", "rollback"]),
            within=within,
        ),
        max_size=4,
    ),
    max_leaves=8,
)


class Model:
    """Which blocks of the user's are open, and which locks they keep."""

    def __init__(self) -> None:
        self.names = map("lock {}".format, itertools.count())
        self.open: dict[str, object] = {}
        self.kept: dict[str, set[object]] = {}

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, str):
                name = next(self.names)
                with lock(name, using=ALIAS):
                    pass
                self.kept[name] = set(self.open.values())
            else:
                with suppress(Undo):
                    self.enter(step)
            self.check()

    def enter(self, block: Block) -> None:
        outermost = block.database not in self.open
        try:
            with transaction.atomic(using=block.database, savepoint=block.savepoint):
                if outermost:
                    self.open[block.database] = object()
                self.check()
                self.run(block.within)
                if block.end == "rollback":
                    transaction.set_rollback(True, using=block.database)
                if block.end == "error":
                    raise Undo
        finally:
            if outermost:
                over = self.open.pop(block.database)
                for blocks in self.kept.values():
                    blocks.discard(over)

    def check(self) -> None:
        kept = {name for name, blocks in self.kept.items() if blocks}
        assert held() >= kept
        # Django reports no rollback: a thread of ours may see it first, and release a moment later.
        assert soon(lambda: held() == kept, 5.0)


def held() -> set[str]:
    return {info.name for info in locks[ALIAS].held()}


@contextmanager
def of_a_testcase() -> Iterator[None]:
    """Open the two transactions of a `TestCase`, its class's and its method's."""
    with ExitStack() as stack:
        for database, _ in itertools.product(DATABASES, range(2)):
            block = transaction.atomic(using=database)
            block._from_testcase = True  # type: ignore[attr-defined]
            stack.enter_context(block)
        yield
        assert not any(connections[database].run_on_commit for database in DATABASES)


@pytest.mark.parametrize("testcase", [False, True])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_a_lock_is_kept_for_as_long_as_the_blocks_around_its_release(
    testcase: bool, steps: list[Step]
) -> None:
    place = f"nesting {next(PLACES)}"  # what one example leaves is not the next one's
    with lock_alias(ALIAS, BACKEND=LOCMEM, LOCATION=place), ExitStack() as stack:
        if testcase:
            stack.enter_context(of_a_testcase())
        Model().run(steps)
