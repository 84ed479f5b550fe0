"""Locks as decorators: what a call does that does not obtain the lock."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockNotAcquiredError,
    LockTimeoutError,
    current_lease,
    lock,
    lock_all,
)

from .tools import LIMIT, UnitBackend, in_thread, without_gc


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
    def instead(error: LockNotAcquiredError, *args: Any, **kwargs: Any) -> Any:
        assert error.name == "a"
        return args, kwargs

    async def ainstead(error: LockNotAcquiredError, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return instead(error, *args, **kwargs)

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


# -- where there is no call to answer --------------------------------------------------------------


@pytest.mark.parametrize("options", [{"on_contention": "skip"}, {"default": 7}], ids=str)
def test_without_a_decorator_these_options_are_refused(
    backend: UnitBackend, options: dict[str, Any]
) -> None:
    mine = lock("a", using=backend.alias, **options)
    group = lock_all("a", using=backend.alias, **options)

    async def entered(guard: Any) -> None:
        async with guard:
            pytest.fail("it heeded what it cannot heed")

    for guard in (mine, group):
        with pytest.raises(InvalidLockError, match="for decorators"), guard:
            pytest.fail("it heeded what it cannot heed")
        with pytest.raises(InvalidLockError, match="for decorators"):
            guard.acquire()
        with pytest.raises(InvalidLockError, match="for decorators"):
            asyncio.run(guard.aacquire())
        with pytest.raises(InvalidLockError, match="for decorators"):
            asyncio.run(entered(guard))
    assert backend.calls == []


def test_cancel_on_lost_has_no_body_to_cancel_by_hand(backend: UnitBackend) -> None:
    options: dict[str, Any] = {"using": backend.alias, "cancel_on_lost": True}
    for guard in (lock("a", **options), lock_all("a", **options)):
        with pytest.raises(InvalidLockError, match="async with"):
            guard.acquire()
        with pytest.raises(InvalidLockError, match="async with"):
            asyncio.run(guard.aacquire())
    assert backend.calls == []


@pytest.mark.parametrize("late", [False, True], ids=["own", "of the settings"])
def test_max_hold_below_the_ttl_is_refused(backend: UnitBackend, late: bool) -> None:
    ttl = {} if late else {"ttl": 60}
    with pytest.raises(InvalidLockError, match="max_hold must not be shorter"):
        lock("a", using=backend.alias, max_hold=5, **ttl).acquire()  # type: ignore[call-overload]
    assert backend.calls == []
    with lock("a", using=backend.alias, max_hold=60, ttl=60):
        pass


# -- with a transaction inside ---------------------------------------------------------------------


def test_atomic_decorates_with_the_name_filled(backend: UnitBackend) -> None:
    """Its name was the template itself: one lock for all invoices."""
    seen: list[object] = []

    @lock("invoice:{pk}", using=backend.alias).atomic()
    def pay(pk: int, lease: Lease | None = None) -> str:
        assert current_lease() is lease
        seen.append((backend.holds(f"invoice:{pk}"), connection.in_atomic_block))
        return "paid"

    assert [pay(1), pay(pk=2)] == ["paid", "paid"]
    assert seen == [(True, True), (True, True)]
    assert not backend.holds("invoice:1")
    assert {name for _, name in backend.calls} == {"invoice:1", "invoice:2"}


def test_one_atomic_is_used_by_many_threads(backend: UnitBackend) -> None:
    """Also when one is still inside whose lease was lost: each ends its own transaction."""
    guarded = lock("a", using=backend.alias, wait=5).atomic()
    entered, left = threading.Event(), threading.Event()

    def other() -> bool:
        with guarded:
            entered.set()
            left.wait(LIMIT)
            return connection.in_atomic_block

    def first() -> None:
        with guarded as lease:
            lease._hold.lose("gone")
            backend.force_release("a")
            inside.append(pool.submit(other))
            assert entered.wait(LIMIT)

    inside: list[Future[bool]] = []
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(LeaseLostError):
            first()
        assert not connection.in_atomic_block
        left.set()
        assert inside[0].result(LIMIT)
        pool.submit(connections.close_all).result(LIMIT)


def test_atomic_heeds_what_a_decorator_heeds(held: Held) -> None:
    def pay(name: str) -> str:
        return "ran without the lock"

    skipping = lock("{name}", **held.options, on_contention="skip", default="skipped").atomic()
    assert skipping(pay)("a") == "skipped"
    with pytest.raises(InvalidLockError, match="'other'"):
        lock("{other}", **held.options).atomic()(pay)


def test_atomic_decorates_no_coroutine_function(backend: UnitBackend) -> None:
    with pytest.raises(InvalidLockError, match="asynchronous transactions"):
        lock("a", using=backend.alias).atomic()(anever)
