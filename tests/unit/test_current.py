"""`current_lease`, and parameters that are given the lease."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import typing
from typing import Any

import pytest
from asgiref.sync import sync_to_async

import django_distlock
from django_distlock import (
    InvalidLockError,
    Lease,
    LockNotHeldError,
    current_lease,
    leader,
    lock,
    lock_all,
    requires_fence,
)
from django_distlock.contrib.celery import locked_task
from django_distlock.views import locked_view

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


LEASES = [
    "Lease",
    "'Lease'",
    "Lease | None",
    "None | django_distlock.Lease",
    "Optional[Lease]",
    "'Optional[Lease]'",
    "typing.Optional[Lease]",
    "typing.Union[Lease, None]",
    "typing.Annotated[Lease, 'the lock', list[int]]",
    "Renamed",
]
OTHERS = ["list[Lease]", "tuple[int, Lease, int]", "Optional[list[Lease]]", "dict[str, Lease]"]
TYPES = {
    "Lease": Lease,
    "Renamed": Lease,
    "Optional": typing.Optional,
    "django_distlock": django_distlock,
    "typing": typing,
}


@pytest.mark.parametrize("annotation", [*LEASES, *OTHERS])
@pytest.mark.parametrize("future", ["from __future__ import annotations", ""])
def test_annotations_of_every_kind(backend: UnitBackend, annotation: str, future: str) -> None:
    """As texts and as what they mean, also within each other."""
    names: dict[str, Any] = dict(TYPES)
    source = f"{future}\ndef work(given: {annotation} = 5): return given"
    exec(compile(source, "users.py", "exec", dont_inherit=True), names)
    given = lock("a", using=backend.alias)(names["work"])()
    assert isinstance(given, Lease) if annotation in LEASES else given == 5


def test_annotations_that_name_what_type_checkers_alone_import(backend: UnitBackend) -> None:
    """As they are written from 3.14 on without quotes, and before with ``annotations``."""
    names: dict[str, Any] = {"Lease": Lease}
    future = "" if sys.version_info >= (3, 14) else "from __future__ import annotations"
    source = (
        f"{future}\ndef work(pk: Unknown, lease: Lease, other: Unknown | None = None): return pk"
    )
    exec(compile(source, "users.py", "exec", dont_inherit=True), names)
    work = names["work"]
    assert lock("a:{pk}", using=backend.alias)(work)(5) == 5
    assert leader("a:{pk}", using=backend.alias)(work)(5) == 5
    with lock("a", using=backend.alias) as lease:
        assert requires_fence(work)(5, lease) == 5
    assert callable(locked_view("a:{pk}", using=backend.alias)(work))
    assert callable(locked_task("a:{pk}", using=backend.alias)(work))


@pytest.mark.parametrize("annotation", ["Lease", "Lease | None", "Optional[Lease]", "dl.Lease"])
def test_a_lease_that_type_checkers_alone_import_is_refused(
    backend: UnitBackend, annotation: str
) -> None:
    """As linters move it there; the parameter would not be filled, without a word."""
    names: dict[str, Any] = {}
    exec(f"def work(pk: int, lease: '{annotation}' = None): ...", names)
    for decorate in (lock, leader, locked_view, locked_task):
        with pytest.raises(InvalidLockError, match="not under TYPE_CHECKING"):
            decorate("a:{pk}", using=backend.alias)(names["work"])


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
