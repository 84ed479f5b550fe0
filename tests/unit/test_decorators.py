"""Locks as decorators: what can be decorated, names from arguments, and contention."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    LeaseLostError,
    LockNotAcquiredError,
    LockTimeoutError,
    lock,
    lock_all,
)
from django_distlock.decorators import fill

from .tools import UnitBackend, in_thread, without_gc


class Thing:
    """An argument with attributes and items."""

    def __init__(self, pk: int | None) -> None:
        self.pk = pk
        self.tags = {"a": "red"}


# -- what is decorated -----------------------------------------------------------------------------


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


# -- names -----------------------------------------------------------------------------------------


def names_of(backend: UnitBackend) -> list[str]:
    """Return the names that were acquired."""
    return [name for verb, name in backend.calls if verb == "try_acquire"]


def test_a_template_is_filled_from_the_bound_arguments(backend: UnitBackend) -> None:
    @lock("{thing.pk}/{thing.tags[a]}/{x:>4}/{args}/{z!r}/{{literal}}", using=backend.alias)
    def work(thing: Thing, x: int = 7, *args: int, z: str = "q") -> None:
        pass

    work(Thing(3))
    work(Thing(3), 8, 9, 10, z="w")
    work(x=5, thing=Thing(4))
    assert names_of(backend) == [
        "3/red/   7/()/'q'/{literal}",
        "3/red/   8/(9, 10)/'w'/{literal}",
        "4/red/   5/()/'q'/{literal}",
    ]


def test_keyword_arguments_fill_by_their_name(backend: UnitBackend) -> None:
    @lock("{a}:{kind}", using=backend.alias)
    def work(a: int, **options: Any) -> None:
        pass

    work(1, kind="x")
    with pytest.raises(InvalidLockError, match="do not fill the template"):
        work(1)
    assert names_of(backend) == ["1:x"]


def test_a_parameter_is_not_hidden_by_a_keyword_argument_of_its_name(
    backend: UnitBackend,
) -> None:
    @lock("{a}", using=backend.alias)
    def work(a: int, /, **options: Any) -> None:
        pass

    work(1, a=2)
    assert names_of(backend) == ["1"]


def test_a_callable_is_given_the_arguments(backend: UnitBackend) -> None:
    seen: list[dict[str, Any]] = []

    def name(**arguments: Any) -> str:
        seen.append(arguments)
        return f"made of {arguments['x']}"

    @lock(name, using=backend.alias)
    def work(x: int, y: int = 2, **options: Any) -> None:
        assert backend.holds(f"made of {x}")

    work(1, extra=True)
    assert seen == [{"x": 1, "y": 2, "extra": True}]


@pytest.mark.parametrize("made", ["", None, 5, b"a"])
def test_a_callable_that_returns_no_name_is_refused(backend: UnitBackend, made: Any) -> None:
    @lock(lambda: made, using=backend.alias)
    def work() -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="no name"):
        work()
    assert backend.calls == []


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("a:{tenant}", "'tenant'"),
        ("a:{tenant.pk}", "'tenant'"),
        ("a:{tenant[0]}", "'tenant'"),
        ("a:{}", "''"),
        ("a:{0}", "'0'"),
        ("a:{", "template"),
        ("a:}", "template"),
    ],
)
def test_a_template_that_no_call_can_fill_is_refused_at_once(template: str, problem: str) -> None:
    with pytest.raises(InvalidLockError, match="template") as caught:
        lock(template, using="shop")(lambda x: x)
    assert problem in str(caught.value)
    assert (caught.value.name, caught.value.alias) == (template, "shop")


@pytest.mark.parametrize(
    ("template", "thing"),
    [("{x.no}", Thing(1)), ("{x[9]}", [1]), ("{x[k]}", {}), ("{x:d}", "text"), ("{x.pk}", None)],
)
def test_an_argument_that_does_not_fill_is_refused(
    backend: UnitBackend, template: str, thing: Any
) -> None:
    @lock(template, using=backend.alias)
    def work(x: Any) -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="do not fill") as caught:
        work(thing)
    assert caught.value.alias == backend.alias
    assert backend.calls == []


def test_a_name_that_comes_out_empty_is_refused(backend: UnitBackend) -> None:
    @lock("{x}", using=backend.alias)
    def work(x: str) -> None:
        pytest.fail("ran without a lock")

    with pytest.raises(InvalidLockError, match="not empty"):
        work("")


def test_wrong_arguments_are_a_type_error_as_without_the_decorator(backend: UnitBackend) -> None:
    @lock("{x}", using=backend.alias)
    def work(x: int) -> None:
        pass

    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        work()  # type: ignore[call-arg]
    assert backend.calls == []


def test_filling_by_hand() -> None:
    assert fill("a:{x}", {"x": 1}, "shop") == "a:1"
    assert fill(lambda x: f"b:{x}", {"x": 1}, "shop") == "b:1"


# -- contention ------------------------------------------------------------------------------------


class Held:
    """A name that another thread holds."""

    def __init__(self, backend: UnitBackend) -> None:
        self.lease = in_thread(lock("a", using=backend.alias).acquire)
        self.options: dict[str, Any] = {"using": backend.alias, "wait": 0}


@pytest.fixture
def held(backend: UnitBackend) -> Held:
    return Held(backend)


def never(*args: Any, **kwargs: Any) -> Any:
    """Fail the test: the body ran without the lock."""
    pytest.fail("ran without the lock")


async def anever(*args: Any, **kwargs: Any) -> Any:
    """Fail the test: the body ran without the lock."""
    pytest.fail("ran without the lock")


def test_contention_raises_by_default(held: Held) -> None:
    with pytest.raises(LockNotAcquiredError):
        lock("a", **held.options)(never)()
    with pytest.raises(LockNotAcquiredError):
        asyncio.run(lock("a", **held.options)(anever)())
    with pytest.raises(LockTimeoutError):
        lock("a", **{**held.options, "wait": 0.02})(never)()


@pytest.mark.parametrize("default", [None, 7, "skipped"])
def test_contention_may_be_skipped(held: Held, default: Any) -> None:
    skipping = lock("a", **held.options, on_contention="skip", default=default)
    assert skipping(never)(1, x=2) == default
    assert asyncio.run(skipping(anever)(1, x=2)) == default


def test_contention_may_call_something_with_the_arguments(held: Held) -> None:
    def instead(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    async def ainstead(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return args, kwargs

    given = ((1,), {"x": 2})
    assert lock("a", **held.options, on_contention=instead)(never)(1, x=2) == given
    for each in (instead, ainstead):
        assert asyncio.run(lock("a", **held.options, on_contention=each)(anever)(1, x=2)) == given


@pytest.mark.parametrize("error", [LockNotAcquiredError, LockTimeoutError])
def test_contention_inside_the_body_is_the_bodys(
    backend: UnitBackend, error: type[Exception]
) -> None:
    # The body took another lock, and did half its work: that is not "skipped".
    skipping = lock("a", using=backend.alias, on_contention="skip", default="skipped")

    def body() -> None:
        raise error("another lock, inside")

    async def abody() -> None:
        raise error("another lock, inside")

    with pytest.raises(error, match="another lock, inside"):
        skipping(body)()
    with pytest.raises(error, match="another lock, inside"):
        asyncio.run(skipping(abody)())
    assert not backend.holds("a")


def test_holding_it_already_is_no_contention(backend: UnitBackend) -> None:
    skipping = lock("a", using=backend.alias, on_contention="skip")

    @skipping
    def work() -> None:
        with pytest.raises(AlreadyHeldError):
            work()

    work()


def test_losing_the_lease_in_the_body_is_told(backend: UnitBackend) -> None:
    decorated = lock("a", using=backend.alias, on_contention="skip")

    def body() -> str:
        backend.force_release("a")
        return "done twice, perhaps"

    async def abody() -> str:
        return body()

    with pytest.raises(LeaseLostError):
        decorated(body)()
    with pytest.raises(LeaseLostError):
        asyncio.run(decorated(abody)())


def test_contention_keeps_nothing_of_the_caller_alive(held: Held) -> None:
    class Local:
        """What a caller has in a local variable, a lease for example."""

    decorated = lock("a", **held.options)(never)

    def caller() -> weakref.ref[Local]:
        local = Local()
        with pytest.raises(LockNotAcquiredError):
            decorated()
        return weakref.ref(local)

    with without_gc():
        assert caller()() is None


def test_a_decorated_function_may_be_called_by_many_at_once(backend: UnitBackend) -> None:
    @lock("many:{x}", using=backend.alias)
    async def work(x: int) -> int:
        await asyncio.sleep(0.01)
        assert backend.holds(f"many:{x}")
        return x

    async def main() -> list[int]:
        return await asyncio.gather(*(work(x) for x in range(8)))

    assert asyncio.run(main()) == list(range(8))


def test_a_group_decorates_as_well(backend: UnitBackend) -> None:
    @lock_all("from:{source}", "to:{target}", using=backend.alias)
    def move(source: int, target: int) -> None:
        assert backend.holds(f"from:{source}")
        assert backend.holds(f"to:{target}")

    move(1, target=2)
    with pytest.raises(InvalidLockError, match="'nobody'"):
        lock_all("a", "{nobody}", using=backend.alias)(never_of_x)


def never_of_x(x: int) -> None:
    pytest.fail("ran without the lock")
