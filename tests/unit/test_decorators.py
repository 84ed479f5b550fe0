"""Locks as decorators: what can be decorated, and what is refused."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from django_distlock import (
    InvalidLockError,
    lock,
)

from .tools import UnitBackend


class Thing:
    """An argument with attributes and items."""

    def __init__(self, pk: int | None) -> None:
        self.pk = pk
        self.tags = {"a": "red"}


def test_a_function_runs_under_the_lock_and_keeps_what_it_is(backend: UnitBackend) -> None:
    def work(tenant: str, *, dry_run: bool = False) -> str:
        """Do the work."""
        assert backend.holds(f"report:{tenant}")
        return f"{tenant} {dry_run}"

    decorated = lock("report:{tenant}", using=backend.alias)(work)
    assert decorated("x", dry_run=True) == "x True"
    assert not backend.holds("report:x")
    assert inspect.signature(decorated) == inspect.signature(work)
    assert (decorated.__name__, decorated.__doc__) == ("work", "Do the work.")
    assert not iscoroutinefunction(decorated)


def test_a_coroutine_function_stays_one(backend: UnitBackend) -> None:
    @lock("report:{tenant}", using=backend.alias)
    async def work(tenant: str) -> str:
        await asyncio.sleep(0)
        assert backend.holds(f"report:{tenant}")
        return tenant

    assert iscoroutinefunction(work)
    assert inspect.iscoroutinefunction(work)
    assert asyncio.run(work("x")) == "x"
    assert not backend.holds("report:x")


def test_methods_of_every_kind(backend: UnitBackend) -> None:
    alias = backend.alias

    class Service:
        pk = 7

        @lock("method:{self.pk}:{x}", using=alias)
        def method(self, x: int) -> int:
            assert backend.holds(f"method:7:{x}")
            return x

        @classmethod
        @lock("class:{cls.__name__}:{x}", using=alias)
        def of_class(cls, x: int) -> int:
            assert backend.holds(f"class:Service:{x}")
            return x

        @staticmethod
        @lock("static:{x}", using=alias)
        def static(x: int) -> int:
            assert backend.holds(f"static:{x}")
            return x

        @lock("async:{self.pk}", using=alias)
        async def later(self) -> int:
            assert backend.holds("async:7")
            return self.pk

        @property
        @lock("property:{self.pk}", using=alias)
        def total(self) -> int:
            assert backend.holds("property:7")
            return 1

    service = Service()
    assert service.method(1) == service.of_class(1) == service.static(1) == service.total == 1
    assert asyncio.run(service.later()) == 7


def test_a_callable_object(backend: UnitBackend) -> None:
    class Handler:
        def __call__(self, x: int, **options: Any) -> int:
            assert backend.holds(f"handler:{x}")
            return x

    assert lock("handler:{x}", using=backend.alias)(Handler())(3) == 3
    partial = functools.partial(Handler(), option=True)
    assert lock("handler:{x}", using=backend.alias)(partial)(3) == 3


def test_a_commands_handle(backend: UnitBackend) -> None:
    from django.core.management.base import BaseCommand

    class Command(BaseCommand):
        @lock("command:{name}", using=backend.alias, wait=0, on_contention="skip")
        def handle(self, *args: Any, **options: Any) -> str:
            assert backend.holds(f"command:{options['name']}")
            return "done"

    assert Command().handle(name="nightly") == "done"


def test_what_is_no_function_is_refused() -> None:
    for wrong in (Thing, 5, "name", None):
        with pytest.raises(InvalidLockError, match="Only functions"):
            lock("a")(wrong)  # type: ignore[arg-type]


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class GeneratorObject:
    """A callable whose call returns a generator."""

    def __call__(self) -> Iterator[int]:
        yield 1


class AsyncObject:
    """A callable whose call returns a coroutine."""

    async def __call__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "function",
    [generator, async_generator, functools.partial(generator), staticmethod(generator)],
)
def test_a_generator_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidLockError, match="generator"):
        lock("a")(function)


def test_a_callable_object_that_makes_a_generator_is_refused() -> None:
    with pytest.raises(InvalidLockError, match="generator"):
        lock("a")(GeneratorObject())


def test_an_asynchronous_callable_object_runs_under_the_lock(backend: UnitBackend) -> None:
    class Checks:
        async def __call__(self) -> bool:
            return backend.holds("a")

    decorated = lock("a", using=backend.alias)(Checks())
    assert iscoroutinefunction(decorated)

    async def main() -> bool:
        return await decorated()

    assert asyncio.run(main())


def test_a_result_that_does_its_work_later_is_refused(backend: UnitBackend) -> None:
    # A wrapper that is not marked as a coroutine function: the body would run after the release.
    async def body() -> None:
        pytest.fail("ran without the lock")

    @lock("a", using=backend.alias)
    def work() -> Any:
        return body()

    with pytest.raises(InvalidLockError, match="coroutine"):
        work()
    assert not backend.holds("a")


def test_a_static_method_object_is_decorated_as_its_function(backend: UnitBackend) -> None:
    class Service:
        @lock("a:{x}", using=backend.alias)
        @staticmethod
        def static(x: int) -> int:
            return x

    assert Service.static(1) == 1
    assert Service().static(1) == 1
