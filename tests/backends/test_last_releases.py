"""A release kept for the end of a transaction: when it fails, and inside a `TestCase`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from django_distlock import lock, locks
from tests.backends.tools import LOCMEM, lock_alias, soon
from tests.unit.tools import Down, UnitBackend, opened


@pytest.fixture
def unit() -> Iterator[UnitBackend]:
    """A backend in memory that fails when it is told to."""
    with opened() as backend:
        yield backend


def test_a_store_that_fails_at_the_commit_is_asked_again(
    unit: UnitBackend, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "django_distlock"), transaction.atomic():
        with lock(name, using=unit.alias):
            pass
        assert unit.holds(name)
        unit.before["release"].append(Down("x"))
    assert "After the transaction" in caplog.text
    assert name in caplog.text
    assert soon(lambda: not unit.holds(name))  # in the background


def test_a_lock_that_was_gone_before_the_commit_is_told(
    unit: UnitBackend, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "django_distlock"), transaction.atomic():
        with lock(name, using=unit.alias):
            pass
        unit.drop(name)
    assert "The transaction ended without its lock" in caplog.text
    assert name in caplog.text


def test_what_is_held_is_right_after_a_rollback(unit: UnitBackend, name: str) -> None:
    """The end of a transaction that nobody has told is noticed before the store is asked."""
    with transaction.atomic():
        with lock(name, using=unit.alias):
            pass
        assert [info.name for info in unit.held()] == [name]
        transaction.set_rollback(True)
    assert [info.name for info in unit.held()] == []


@contextmanager
def of_a_testcase() -> Iterator[None]:
    """Open a transaction as Django's `TestCase` does around a test."""
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]
    with block:
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_inside_a_testcase_the_users_block_is_the_transaction(
    name: str, end: str, savepoint: bool
) -> None:
    """Where the lock is in another store, which another process of the test may look at."""
    with lock_alias("mine", BACKEND=LOCMEM), of_a_testcase():
        with transaction.atomic(savepoint=savepoint):
            assert connections["default"].savepoint_ids
            with lock(name, using="mine"):
                pass
            assert [info.name for info in locks["mine"].held()] == [name]
            assert not connections["default"].run_on_commit, "users count them"
            if end == "rollback":
                transaction.set_rollback(True)
        assert [info.name for info in locks["mine"].held()] == []
