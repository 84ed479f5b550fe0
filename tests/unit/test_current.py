"""`current_lease`, and parameters that are given the lease."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from typing import Any

import pytest
from asgiref.sync import sync_to_async

import django_distlock
from django_distlock import (
    InvalidLockError,
    Lease,
    LockNotHeldError,
    current_lease,
    lock,
    lock_all,
)

from .tools import UnitBackend, eventually, in_thread


def test_what_is_called_below_finds_the_lease(backend: UnitBackend) -> None:
    def below() -> str:
        current_lease().check()
        return current_lease().name

    @lock("report:{tenant}", using=backend.alias)
    def work(tenant: str) -> str:
        return below()

    @lock("report:{tenant}", using=backend.alias)
    async def awork(tenant: str) -> list[str]:
        await asyncio.sleep(0)
        inside = asyncio.create_task(sync_to_async(below)())
        return [below(), await sync_to_async(below)(), await inside]

    assert work("a") == "report:a"
    assert asyncio.run(awork("a")) == ["report:a"] * 3


def test_the_innermost_decorators_or_that_of_a_name(backend: UnitBackend) -> None:
    names = []

    @lock("inner", using=backend.alias)
    def inner() -> None:
        names.append(current_lease().name)
        names.append(current_lease("outer").name)

    @lock("outer", using=backend.alias)
    def outer() -> None:
        inner()
        names.append(current_lease().name)
        with pytest.raises(LockNotHeldError, match="of lock 'inner'"):
            current_lease("inner")

    outer()
    assert names == ["inner", "outer", "outer"]


def test_of_a_group_each_and_without_a_name_the_last(backend: UnitBackend) -> None:
    @lock_all("b:{x}", "a:{x}", using=backend.alias)
    def work(x: int) -> list[str]:
        return [current_lease().name, current_lease("a:1").name, current_lease("b:1").name]

    assert work(1) == ["a:1", "a:1", "b:1"]  # the last one of those given


def test_outside_there_is_none(backend: UnitBackend) -> None:
    @lock("a", using=backend.alias)
    def fail() -> None:
        in_thread(outside)  # another thread is not the decorated function
        raise OSError

    def outside() -> None:
        with pytest.raises(LockNotHeldError, match="no function decorated"):
            current_lease()

    with pytest.raises(OSError):  # noqa: PT011 - it is ours
        fail()
    outside()
    with lock("a", using=backend.alias):
        outside()


def test_a_parameter_is_given_the_lease_wherever_it_stands(backend: UnitBackend) -> None:
    on = lock("{pk}", using=backend.alias)

    def seen(lease: Lease | None, *rest: object) -> tuple[object, ...]:
        assert lease is current_lease()
        return rest

    @on
    def first(lease: Lease, pk: int, more: int = 2) -> object:
        return seen(lease, pk, more)

    @on
    def middle(pk: int, lease: Lease, more: int = 2) -> object:
        return seen(lease, pk, more)

    @on
    def last(pk: int, more: int = 2, lease: Lease | None = None) -> object:
        return seen(lease, pk, more)

    @on
    def keyword(pk: int, *more: int, lease: django_distlock.Lease) -> object:
        return seen(lease, pk, *(more or (2,)))

    for function in (first, middle, last, keyword):
        called: Any = function
        assert called(1) == (1, 2)
        assert called(1, 3) == (1, 3)
        assert "lease" not in inspect.signature(function).parameters
        if function is not keyword:
            assert called(pk=1, more=3) == called(1, more=3) == (1, 3)
        with pytest.raises(TypeError):
            called(pk=1, lease=None)


def test_methods_coroutines_and_transactions_are_given_it_too(backend: UnitBackend) -> None:
    class Service:
        """A user's class."""

        @lock("a:{pk}", using=backend.alias)
        def work(self, lease: Lease, pk: int) -> str:
            return lease.name

        @lock("a:{pk}", using=backend.alias)
        async def awork(self, pk: int, lease: Lease) -> str:
            await asyncio.sleep(0)
            return lease.name

    service: Any = Service()
    assert service.work(1) == service.work(pk=1) == "a:1"
    assert asyncio.run(service.awork(1)) == "a:1"


def test_annotations_that_are_no_text(backend: UnitBackend) -> None:
    def work(lease, maybe=None): ...  # type: ignore[no-untyped-def]

    work.__annotations__ = {"lease": Lease}
    decorated: Any = lock("a", using=backend.alias)(work)
    decorated()
    work.__annotations__ = {"lease": Lease | None}
    decorated = lock("a", using=backend.alias)(work)
    decorated(maybe=2)


def test_a_lease_of_the_users_own_is_no_lock(backend: UnitBackend) -> None:
    """As the model of who lets flats."""
    own: dict[str, Any] = {}
    exec(
        "class Lease: ...\ndef let(lease: 'Lease', none: 'Lease | None' = None): return lease", own
    )

    @functools.wraps(own["let"])
    def wrapped(*args: Any) -> object:
        return own["let"](*args)

    flat = own["Lease"]()
    for function in (own["let"], wrapped, functools.partial(own["let"])):
        assert lock("a", using=backend.alias)(function)(flat) is flat


def test_objects_that_are_called_are_given_it_too(backend: UnitBackend) -> None:
    class Work:
        """A user's object."""

        def __call__(self, pk: int, lease: Lease) -> str:
            return f"{pk} {lease.name}"

    for function in (Work(), functools.partial(Work())):
        decorated: Any = lock("a", using=backend.alias)(function)
        assert decorated(1) == "1 a"


def test_a_coroutine_that_another_context_closes(backend: UnitBackend) -> None:
    @lock("a", using=backend.alias)
    async def work() -> None:
        await asyncio.sleep(60)

    async def begin() -> Any:
        coroutine = work()
        contextvars.copy_context().run(coroutine.send, None)
        return coroutine

    asyncio.run(begin()).close()
    assert eventually(lambda: not backend.holds("a"))


def test_what_cannot_be_given_is_refused_when_decorating(backend: UnitBackend) -> None:
    def two(one: Lease, other: Lease) -> None: ...
    def positional(lease: Lease, /) -> None: ...
    def many(*leases: Lease) -> None: ...
    def named(lease: Lease) -> None: ...

    for function in (two, positional, many):
        with pytest.raises(InvalidLockError, match="annotated Lease"):
            lock("a", using=backend.alias)(function)
    with pytest.raises(InvalidLockError, match="has several"):
        lock_all("a", "b", using=backend.alias)(named)
    with pytest.raises(InvalidLockError, match="names 'lease'"):
        lock("{lease}", using=backend.alias)(named)
