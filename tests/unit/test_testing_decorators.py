"""`override_locks` as a decorator of functions and of TestCase classes."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Iterator

import pytest
from django.test import SimpleTestCase

from django_distlock import (
    lock,
)
from django_distlock.testing import override_locks

from .tools import is_in_memory


def test_functions_are_decorated() -> None:
    @override_locks(held={"a"})
    def work(number: int, *, more: int) -> int:
        assert lock("a").locked()
        return number + more

    assert work(1, more=2) == 3
    assert work(1, more=2) == 3
    assert work.__name__ == "work"
    assert not lock("a").locked()


def test_async_functions_are_decorated() -> None:
    @override_locks(held={"a"})
    async def work(number: int) -> int:
        assert await lock("a").alocked()
        return number

    assert asyncio.run(work(1)) == 1
    assert not lock("a").locked()


def test_a_decorated_function_that_fails_leaves_nothing() -> None:
    @override_locks()
    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_what_cannot_be_decorated_is_told() -> None:
    def generator() -> Iterator[int]:
        yield 1

    class Plain:
        pass

    with pytest.raises(TypeError, match="generator"):
        override_locks()(generator)
    with pytest.raises(TypeError, match=r"pytest\.mark\.override_locks"):
        override_locks()(Plain)


def test_enabled_and_disabled_by_hand() -> None:
    switch = override_locks()
    switch.enable()
    assert is_in_memory()
    switch.disable()
    assert not is_in_memory()


# -- TestCase classes ------------------------------------------------------------------------------


def run(*cases: type[unittest.TestCase]) -> list[str]:
    """Run classes as unittest does; return what failed."""
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun
    return [text for _, text in (*result.errors, *result.failures)]


def test_each_test_of_a_class_begins_anew() -> None:
    seen: list[str] = []

    @override_locks(held={"busy"})
    class Case(unittest.TestCase):
        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            cls.lease = lock("of the class").acquire()  # type: ignore[attr-defined]
            seen.append("class")

        def setUp(self) -> None:
            super().setUp()
            assert lock("busy").locked()
            assert not lock("of the class").locked()

        def test_1(self) -> None:
            assert lock("left").acquire()
            seen.append("test")

        def test_2(self) -> None:
            self.test_1()

        @classmethod
        def tearDownClass(cls) -> None:
            cls.lease.release()  # type: ignore[attr-defined]
            super().tearDownClass()

    assert run(Case) == []
    assert seen == ["class", "test", "test"]


def test_a_class_without_set_up_and_a_failing_one() -> None:
    @override_locks(held={"busy"})
    class Case(SimpleTestCase):
        def test_it(self) -> None:
            self.assertTrue(lock("busy").locked())  # noqa: PT009

        async def test_async(self) -> None:
            assert await lock("busy").alocked()

    @override_locks()
    class Failing(unittest.TestCase):
        def setUp(self) -> None:
            raise ZeroDivisionError

        def test_it(self) -> None:
            raise NotImplementedError

    class Async(unittest.IsolatedAsyncioTestCase):
        async def test_it(self) -> None:
            assert await lock("busy").alocked()

    assert run(Case, override_locks(held={"busy"})(Async)) == []
    (failure,) = run(Failing)
    assert "ZeroDivisionError" in failure


def test_the_decorator_of_a_subclass_is_the_inner_one() -> None:
    @override_locks(held={"of the base"})
    class Base(unittest.TestCase):
        def test_it(self) -> None:
            assert lock("of the base").locked()

    @override_locks(held={"of the subclass"})
    class Sub(Base):
        def setUp(self) -> None:
            assert lock("of the subclass").locked()
            super().setUp()

        def test_it(self) -> None:
            assert lock("of the subclass").locked()
            assert not lock("of the base").locked()

    class Undecorated(Base):
        def setUp(self) -> None:
            super().setUp()
            assert lock("of the base").locked()

    assert run(Base, Sub, Undecorated) == []
