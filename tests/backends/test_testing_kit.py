"""The kit in Django's TestCase and TransactionTestCase, with the locks in a real database."""

from __future__ import annotations

import threading
import unittest
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_distlock import (
    AlreadyHeldError,
    LeaseLostError,
    LockNotAcquiredError,
    lock,
    locks,
)
from django_distlock.testing import (
    aassert_free,
    aassert_held,
    advance_clock,
    aexpire_lease,
    assert_free,
    assert_held,
    expire_lease,
    hold_elsewhere,
    override_locks,
)


def elsewhere(using: str) -> None:
    with hold_elsewhere("kit:a", using=using) as other:
        with pytest.raises(LockNotAcquiredError, match="elsewhere"):
            lock("kit:a", using=using, wait=0).__enter__()
        with transaction.atomic(using=using):
            assert lock("kit:a", using=using).acquire(wait=0) is None
        info = assert_held("kit:a", using=using)
        assert info.fencing_token == other.fencing_token
        with pytest.raises(AssertionError, match="by elsewhere"):
            assert_free("kit:a", using=using)
        with lock("kit:b", using=using), pytest.raises(AlreadyHeldError):
            lock("kit:b", using=using).acquire()
    with lock("kit:a", using=using, wait=0) as lease:
        assert lease.fencing_token > other.fencing_token
    with hold_elsewhere("kit:a", using=using) as other:
        other.release()
        with lock("kit:a", using=using, wait=0):
            pass
    with hold_elsewhere("kit:a", using=using, ttl=0.1), lock("kit:a", using=using, wait=20):
        pass
    with pytest.raises(AssertionError, match=r"is free\."):
        assert_held("kit:a", using=using)


def losing(using: str) -> None:
    def by_lease() -> None:
        with lock("kit:a", using=using) as lease:
            expire_lease(lease, reason="an operator")
            with lock("kit:a", using=using, wait=0):
                pass

    def by_name() -> None:
        with lock("kit:a", using=using):
            expire_lease("kit:a", using=using)
            assert_free("kit:a", using=using)

    with pytest.raises(LeaseLostError, match="an operator"):
        by_lease()
    with pytest.raises(LeaseLostError, match="a test said so"):
        by_name()


def instead(using: str) -> None:
    with lock("kit:a", using=using) as outer:
        with override_locks(using=using, held={"kit:b"}, wait=0):
            with lock("kit:a", using=using) as inner:
                advance_clock(90, using=using, renew=True)
                inner.check()
            assert lock("kit:b", using=using).acquire() is None
        outer.check()
        assert_held("kit:a", using=using)
        assert_free("kit:b", using=using)
        with pytest.raises(AlreadyHeldError):
            lock("kit:a", using=using).acquire()


async def asynchronously(using: str) -> None:
    async with hold_elsewhere("kit:a", using=using):
        await aassert_held("kit:a", using=using)
        assert await lock("kit:a", using=using).aacquire(wait=0) is None
    await aassert_free("kit:a", using=using)
    with pytest.raises(LeaseLostError):
        async with lock("kit:a", using=using) as lease:
            await aexpire_lease(lease)
    with pytest.raises(AssertionError, match=r"is free\."):
        await aassert_held("kit:a", using=using)


def run(case: type[unittest.TestCase]) -> None:
    """Run a class as unittest does; it has to pass."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun
    assert [text for _, text in (*result.errors, *result.failures)] == []


def cases(using: str, kind: type[SimpleTestCase], work: Callable[[str], Any]) -> type[Any]:
    """Return a class of one test, with the database of ``using``."""

    def test(self: SimpleTestCase) -> Any:
        # Nothing but the test's own, whatever other tests of this database left.
        assert [info.name for info in locks[using].held("kit:")] == []
        return work(using)

    async def atest(self: SimpleTestCase) -> Any:
        return await work(using)

    names: dict[str, Any] = {"databases": {using}, "available_apps": None}
    names |= {"test_it": atest if work is asynchronously else test}
    if kind is TransactionTestCase:
        names["_fixture_teardown"] = lambda self: None  # the database is shared: flush nothing
    return type("Case", (kind,), names)


@pytest.mark.parametrize("work", [elsewhere, losing, instead, asynchronously])
@pytest.mark.parametrize("kind", [TestCase, TransactionTestCase])
def test_in_a_test_of_django(store: str, kind: type[Any], work: Callable[[str], Any]) -> None:
    run(cases(store, kind, work))
    assert [info.name for info in locks[store].held("kit:")] == []
    assert not connections[store].in_atomic_block


def test_a_test_that_breaks_its_transaction(store: str) -> None:
    """The body's error is the one that is seen, and the rollback takes the lock away."""

    class Broken(TestCase):
        def test_it(self) -> None:
            def work() -> None:
                with hold_elsewhere("kit:a", using=store):
                    transaction.set_rollback(True, using=store)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                work()

    Broken.databases = {store}
    run(Broken)
    assert_free("kit:a", using=store)


def test_no_database_is_needed_in_memory(store: str) -> None:
    class Simple(SimpleTestCase):
        @override_locks(held={store: {"kit:b"}}, wait=0)
        def test_it(self) -> None:
            with lock("kit:a", using=store):
                pass
            with pytest.raises(TimeoutError), lock("kit:b", using=store):
                pass

    run(Simple)


def test_other_threads_are_kept_out(store: str) -> None:
    got: list[object] = []

    def work() -> None:
        got.append(lock("kit:a", using=store, wait=0).acquire())
        connections[store].close()

    with hold_elsewhere("kit:a", using=store):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
    assert got == [None]


@pytest.mark.parametrize("alias", ["locmem", "in memory"])
def test_a_lock_kept_for_a_transaction(store: str, alias: str) -> None:
    """It is held until the commit; it can be lost before, and then the commit frees nothing."""
    using, stand_in = (alias, "dummy") if alias == "locmem" else (store, store)
    with override_locks(using=stand_in):
        with transaction.atomic(using=store):
            with lock("kit:a", using=using):
                pass
            assert_held("kit:a", using=using)
        assert_free("kit:a", using=using)
        with transaction.atomic(using=store):
            with lock("kit:a", using=using):
                pass
            expire_lease("kit:a", using=using)
            second = lock("kit:a", using=using, wait=0).acquire()
            assert second
        second.check()
        second.release()


def test_a_block_that_ends_before_the_transaction(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with transaction.atomic(using=store):
        with override_locks(using=store):
            with lock("kit:a", using=store):
                pass
            assert_held("kit:a", using=store)
        assert_free("kit:a", using=store)
        with lock("kit:a", using=store, wait=0):
            caplog.clear()
    assert caplog.messages == []
    assert_free("kit:a", using=store)
