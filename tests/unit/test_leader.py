"""`leader`: what does not depend on the store."""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle

import pytest

from django_distlock import (
    InvalidLockError,
    Leader,
    Lease,
    LeaseLostError,
    LockBackendError,
    current_lease,
    leader,
    lock,
)
from django_distlock import leader as leader_function
from django_distlock.core.backoff import Backoff

from .tools import Down, UnitBackend


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a store that failed again without delay."""
    module = inspect.getmodule(Leader)
    monkeypatch.setattr(module, "RETRIES", Backoff(0.001, 0.001))


def test_the_function_is_given_the_lease(backend: UnitBackend) -> None:
    elected = leader("scheduler:{region}", using=backend.alias)

    @elected
    def named(lease: Lease, region: str) -> str:
        assert current_lease() is lease
        return lease.name

    @elected
    def plain(lease, region):  # type: ignore[no-untyped-def]
        return lease.name

    @elected
    async def native(region: str, *, lease: Lease) -> str:
        return lease.name

    @elected
    def without(region: str) -> str:
        return current_lease().name

    assert list(inspect.signature(plain).parameters) == ["region"]
    assert {each(region="north") for each in (named, plain, without)} == {"scheduler:north"}  # type: ignore[call-arg]
    assert asyncio.run(native("north")) == "scheduler:north"  # type: ignore[call-arg]
    assert not lock("scheduler:north", using=backend.alias).locked()


def test_a_campaign_outlasts_a_store_that_is_down(
    backend: UnitBackend, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> int:
        return current_lease().fencing_token

    async def awork() -> int:
        return current_lease().fencing_token

    elected = leader("scheduler", using=backend.alias)
    with caplog.at_level(logging.WARNING, "django_distlock"):
        backend.before["try_acquire"] = [Down(), Down()]
        first = elected(work)()
        backend.before["try_acquire"] = [Down(), Down()]
        assert asyncio.run(elected(awork)()) > first
    assert caplog.text.count("The campaign goes on") == 4


def test_errors_of_the_function_end_the_campaign(backend: UnitBackend) -> None:
    elected = leader("scheduler", using=backend.alias)
    errors = [
        KeyError("x"),
        LockBackendError("of another store", name="scheduler", alias="other"),
        LeaseLostError("of another lock", name="import", alias=backend.alias),
        LeaseLostError("of another store", name="scheduler", alias="other"),
    ]
    for error in errors:

        @elected
        def work(error: Exception = error) -> None:
            raise error

        @elected
        async def awork(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            work()
        assert raised.value is error
        with pytest.raises(type(error)) as raised:
            asyncio.run(awork())
        assert raised.value is error
        assert leader("scheduler", using=backend.alias).current() is None


def test_a_leader_that_resigned_does_not_campaign_again(backend: UnitBackend) -> None:
    elected = leader("scheduler", using=backend.alias)
    led = []

    @elected
    def work(lease: Lease) -> None:
        led.append(lease)
        lease.resign()
        assert elected.current() is None

    @elected
    async def awork(lease: Lease) -> None:
        led.append(lease)
        await lease.aresign()
        assert await elected.acurrent() is None

    work()  # type: ignore[call-arg]
    asyncio.run(awork())  # type: ignore[call-arg]
    assert len(led) == 2


def test_a_method_may_be_static(backend: UnitBackend) -> None:
    class Worker:
        @leader("scheduler", using=backend.alias)
        @staticmethod
        def work() -> str:
            return current_lease().name

    assert Worker.work() == "scheduler"


def test_it_is_a_value(backend: UnitBackend) -> None:
    one = leader("scheduler", using=backend.alias, ttl=5)
    assert one == leader("scheduler", using=backend.alias, ttl=5)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one.lock.wait is None


def test_observers_see_each_change_once(backend: UnitBackend) -> None:
    watched = leader("scheduler", using=backend.alias)
    seen = watched.observe(every=0.01)
    assert next(seen) is None
    with lock("scheduler", using=backend.alias) as lease:
        told = next(seen)
        assert told is not None
        assert told.fencing_token == lease.fencing_token
    assert next(seen) is None


def test_an_observer_is_told_of_a_store_that_is_down(backend: UnitBackend) -> None:
    backend.before["inspect"] = [Down(), Down()]
    watched = leader("scheduler", using=backend.alias)
    with pytest.raises(LockBackendError):
        next(watched.observe())
    with pytest.raises(LockBackendError):
        asyncio.run(_first(watched))


def test_nonsense_is_refused(backend: UnitBackend) -> None:
    with pytest.raises(InvalidLockError, match="ttl"):
        leader("scheduler", ttl=0)
    with pytest.raises(InvalidLockError, match="every"):
        next(leader("scheduler", using=backend.alias).observe(every=0))
    with pytest.raises(InvalidLockError, match="needs the name"):

        @leader_function  # type: ignore[arg-type]
        def work() -> None: ...

    with pytest.raises(InvalidLockError, match="region"):
        leader("scheduler:{region}", using=backend.alias)(lambda: None)


async def _first(watched: Leader) -> object:
    return await anext(watched.aobserve())
