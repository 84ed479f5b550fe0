"""`hold_elsewhere`, `expire_lease`, `assert_held` and `assert_free`, on a store in memory."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
    locks,
)
from django_distlock.core.worker import callbacks
from django_distlock.testing import (
    aassert_free,
    aassert_held,
    aexpire_lease,
    assert_free,
    assert_held,
    expire_lease,
    hold_elsewhere,
    override_locks,
)

from .tools import Conflict, Down, Gate, UnitBackend, eventually, in_thread

# -- hold_elsewhere --------------------------------------------------------------------------------


def test_somebody_else_holds_it(backend: UnitBackend) -> None:
    using = backend.alias
    with hold_elsewhere("a", using=using) as elsewhere:
        assert elsewhere.fencing_token > 0
        with pytest.raises(LockTimeoutError, match=r"elsewhere .*test_testing_kit\.py"):
            lock("a", using=using, wait=0.01).__enter__()
        assert lock("a", using=using).acquire(wait=0) is None
        assert in_thread(lock("a", using=using, wait=0).acquire) is None
    with lock("a", using=using, wait=0) as lease:
        assert lease.fencing_token > elsewhere.fencing_token


def test_it_lets_go_early(backend: UnitBackend) -> None:
    with hold_elsewhere("a", using=backend.alias) as elsewhere:
        elsewhere.release()
        with lock("a", using=backend.alias, wait=0):
            elsewhere.release()  # again does no harm
        assert_free("a", using=backend.alias)


def test_a_waiter_gets_it_when_it_expires(backend: UnitBackend) -> None:
    begun = time.monotonic()
    using = backend.alias
    with hold_elsewhere("a", using=using, ttl=0.1), lock("a", using=using, wait=10):
        assert time.monotonic() - begun > 0.05


def test_without_a_ttl_it_lasts(backend: UnitBackend) -> None:
    with hold_elsewhere("a", using=backend.alias):
        info = assert_held("a", using=backend.alias)
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert (info.expires_at - info.acquired_at).total_seconds() > 3000


def test_in_async_code(backend: UnitBackend) -> None:
    async def main() -> None:
        async with hold_elsewhere("a", using=backend.alias) as elsewhere:
            assert await lock("a", using=backend.alias).aacquire(wait=0) is None
            await elsewhere.arelease()
            async with lock("a", using=backend.alias, wait=0):
                pass

    asyncio.run(main())


def test_what_is_held_already_cannot_be_held_elsewhere(backend: UnitBackend) -> None:
    refused = pytest.raises(LockNotAcquiredError, match="held already by")
    with lock("a", using=backend.alias), refused:
        hold_elsewhere("a", using=backend.alias).__enter__()
    for wrong in ({"ttl": 0}, {"ttl": True}, {"name": ""}):
        options: Any = {"name": "a", "using": backend.alias, **wrong}
        with pytest.raises(InvalidLockError):
            hold_elsewhere(**options)


def test_conflicts_of_the_store_are_tried_again(backend: UnitBackend) -> None:
    backend.before["try_acquire"] = [Conflict()]
    backend.before["release"] = [Conflict()]
    with hold_elsewhere("a", using=backend.alias):
        assert backend.holds("a")
    assert not backend.holds("a")


def test_a_store_that_fails_at_the_end(backend: UnitBackend) -> None:
    elsewhere = hold_elsewhere("a", using=backend.alias)
    with pytest.raises(LockBackendError), elsewhere:
        backend.before["release"] = [Down()]
    elsewhere.release()
    assert not backend.holds("a")


def test_the_error_of_the_body_wins(backend: UnitBackend) -> None:
    def work() -> None:
        with hold_elsewhere("a", using=backend.alias):
            backend.before["release"] = [Down()]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert "could not release 'a'" in caught.value.__notes__[0]


# -- lose ------------------------------------------------------------------------------------------


def test_a_lease_is_lost_in_the_middle(backend: UnitBackend, lost: list[dict[str, Any]]) -> None:
    told: list[str] = []

    def slowly(lease: Lease) -> None:
        time.sleep(0.05)
        told.append(lease.name)

    lease = lock("a", using=backend.alias).acquire()
    assert lease
    lease.on_lost(slowly)
    expire_lease(lease, reason="an operator broke it")
    assert told == ["a"]
    assert [(each["name"], each["reason"]) for each in lost] == [("a", "an operator broke it")]
    assert lease.lost
    assert lease.remaining() == 0
    with pytest.raises(LeaseLostError):
        lease.check()
    with lock("a", using=backend.alias, wait=0) as second:
        assert second.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLostError, match="operator"):
        lease.release()


def test_a_lease_out_of_reach_is_lost_by_its_name(backend: UnitBackend) -> None:
    with pytest.raises(LeaseLostError, match="a test said so"), lock("a", using=backend.alias):
        expire_lease("a", using=backend.alias)
    held: threading.Event = threading.Event()
    over = threading.Event()
    errors: list[LeaseLostError] = []

    def work() -> None:
        try:
            with lock("b", using=backend.alias):
                held.set()
                over.wait(10)
        except LeaseLostError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert held.wait(10)
    expire_lease("b", using=backend.alias)
    over.set()
    thread.join(10)
    assert len(errors) == 1


def test_what_is_not_held_cannot_be_lost(backend: UnitBackend) -> None:
    lease = lock("a", using=backend.alias).acquire()
    assert lease
    with pytest.raises(LockNotHeldError, match="holds 'a' of it"):
        expire_lease("b", using=backend.alias)
    expire_lease(lease)
    with pytest.raises(LeaseLostError):
        expire_lease(lease)
    with pytest.raises(LockNotHeldError, match="holds nothing of it"):
        expire_lease("a", using=backend.alias)
    released = lock("a", using=backend.alias).acquire()
    assert released
    released.release()
    with pytest.raises(LockNotHeldError):
        expire_lease(released)


def test_a_store_that_fails_loses_nothing(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias) as lease:
        backend.before["release"] = [Down()]
        with pytest.raises(LockBackendError):
            expire_lease(lease)
        lease.check()
        assert lease._hold.renewing


def test_losing_cancels_the_body(backend: UnitBackend) -> None:
    steps: list[str] = []

    async def main() -> None:
        async with lock("a", using=backend.alias, cancel_on_lost=True) as lease:
            steps.append("begun")
            await aexpire_lease(lease)
            await asyncio.sleep(10)
            steps.append("ended")

    with pytest.raises(LeaseLostError):
        asyncio.run(main())
    assert steps == ["begun"]


def test_a_callback_may_need_the_loop(backend: UnitBackend) -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        told: list[str] = []

        async def note(name: str) -> None:
            told.append(name)

        lease = await lock("a", using=backend.alias).aacquire()
        assert lease
        lease.on_lost(lambda each: asyncio.run_coroutine_threadsafe(note(each.name), loop).result())
        await aexpire_lease("a", using=backend.alias)
        return told

    assert asyncio.run(main()) == ["a"]


def test_a_callback_may_lose_another(backend: UnitBackend) -> None:
    first = lock("a", using=backend.alias).acquire()
    second = lock("b", using=backend.alias).acquire()
    assert first
    assert second
    first.on_lost(lambda _: expire_lease(second))
    expire_lease(first)
    assert second.lost


def test_a_callback_that_hangs_is_not_waited_for(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.testing.expiring.LIMIT", 0.05)
    gate = Gate()
    for runner in ("sync", "async"):
        lease = lock(runner, using=backend.alias).acquire()
        assert lease
        lease.on_lost(lambda _: gate.pass_through())
        if runner == "sync":
            expire_lease(lease)
        else:
            asyncio.run(aexpire_lease(lease))
        assert lease.lost
    gate.open.set()
    assert eventually(callbacks.is_idle, 10)


# -- asserts ---------------------------------------------------------------------------------------


def test_held_tells_who(backend: UnitBackend) -> None:
    with lock("a", using=backend.alias, metadata={"order": 7}) as lease:
        info = assert_held("a", using=backend.alias)
    assert info.name == "a"
    assert info.fencing_token == lease.fencing_token
    assert info.metadata == {"order": 7}


def test_not_held_tells_what_is(backend: UnitBackend) -> None:
    using = backend.alias
    with pytest.raises(AssertionError, match=r"'a' of alias 'unit\d+' is free\. Nothing is held\."):
        assert_held("a", using=using)
    failure = pytest.raises(AssertionError)
    with lock("b", using=using), hold_elsewhere("c", using=using), failure as caught:
        assert_held("a", using=using)
    said = str(caught.value)
    assert re.search(r"Held are:\n  'b', by .* pid \d+", said)
    assert re.search(r"\n  'c', by elsewhere pid \d+, held for a test, .*test_testing_kit", said)


def test_not_free_tells_who_and_since_when(backend: UnitBackend) -> None:
    assert_free("a", using=backend.alias)
    with lock("a", using=backend.alias) as lease, pytest.raises(AssertionError) as caught:
        assert_free("a", using=backend.alias)
    said = str(caught.value)
    assert re.search(r"is held, by .*test_testing_kit\.py:\d+ \S+, for 0\.\d s \(since ", said)
    assert f"token {lease.fencing_token}" in said
    assert "for another" in said


def test_a_long_list_is_cut(backend: UnitBackend) -> None:
    leases = [lock(f"n{number}", using=backend.alias).acquire() for number in range(12)]
    with pytest.raises(AssertionError) as caught:
        assert_held("a", using=backend.alias)
    assert str(caught.value).count("\n  'n") == 10
    assert str(caught.value).endswith("and others")
    del leases


def test_the_dummy_backend_is_told(name: str) -> None:
    with (
        lock(name, using="dummy"),
        pytest.raises(AssertionError, match="DummyBackend holds nothing"),
    ):
        assert_held(name, using="dummy")
    with pytest.raises(InvalidLockError):
        assert_held("")


def test_asserts_in_async_code(backend: UnitBackend) -> None:
    async def main() -> None:
        await aassert_free("a", using=backend.alias)
        with pytest.raises(AssertionError, match="Nothing is held"):
            await aassert_held("a", using=backend.alias)
        async with lock("a", using=backend.alias):
            assert (await aassert_held("a", using=backend.alias)).name == "a"
            with pytest.raises(AssertionError, match="is held, by"):
                await aassert_free("a", using=backend.alias)

    asyncio.run(main())


def test_the_kit_is_no_holder_of_this_process() -> None:
    with override_locks(), hold_elsewhere("a"):
        with pytest.raises(LockNotHeldError):
            expire_lease("a")
        with lock("b"), pytest.raises(AlreadyHeldError):
            lock("b").acquire()
        locks["default"].force_release("a")
