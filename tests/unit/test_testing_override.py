"""`override_locks`: locks in memory in the place of the stores."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import SimpleTestCase, override_settings

from django_distlock import (
    AlreadyHeldError,
    InvalidLockBackendError,
    InvalidLockError,
    LeaseLostError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
    lock_all,
    locks,
)
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.testing import hold_elsewhere, override_locks
from django_distlock.testing.memory import MemoryBackend

from .graph import ROOT
from .tools import in_thread

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Find a cover that a test has left."""
    yield
    assert not locks._covers
    for backend in locks.all(initialized_only=True):
        assert not isinstance(backend, MemoryBackend)


def is_in_memory(alias: str = "default") -> bool:
    return isinstance(locks[alias], MemoryBackend)


# -- block and decorator ---------------------------------------------------------------------------


def test_a_block_replaces_every_alias() -> None:
    before = locks["default"]
    with override_locks():
        assert all(is_in_memory(alias) for alias in locks)
        with lock("a") as lease:
            lease.check()
            assert lock("a").locked()
            with pytest.raises(AlreadyHeldError):
                lock("a").acquire()
    assert locks["default"] is before
    assert not lock("a").locked()


def test_a_named_alias_is_replaced_and_the_others_are_not() -> None:
    for using in ("locmem", ["locmem"]):
        with override_locks(using=using):
            assert is_in_memory("locmem")
            assert not is_in_memory("default")


def test_an_async_block() -> None:
    async def main() -> None:
        async with override_locks(held={"a"}):
            assert await lock("a").alocked()
            async with lock("b") as lease:
                lease.check()

    asyncio.run(main())


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


# -- held and wait ---------------------------------------------------------------------------------


def test_what_is_held_is_held_by_somebody_else() -> None:
    with override_locks(held=["a", "b"], wait=0):
        with pytest.raises(LockNotAcquiredError, match=r"elsewhere .*test_testing_override\.py"):
            lock("a").acquire(wait=0) or lock("a").__enter__()
        assert in_thread(lock("b", wait=0).acquire) is None
        assert lock("c").acquire()
        info = next(locks["default"].held("a"))
        assert info.holder.host == "elsewhere"


def test_one_name_alone_is_a_name() -> None:
    with override_locks(held="abc"):
        assert lock("abc").locked()
        assert not lock("a").locked()


def test_held_by_alias() -> None:
    with override_locks(held={"locmem": {"a"}, "default": "b"}):
        assert lock("a", using="locmem").locked()
        assert not lock("a").locked()
        assert lock("b").locked()
        assert not lock("b", using="locmem").locked()


def test_somebody_else_lets_go() -> None:
    with override_locks(held={"a"}) as memory:
        memory.release("a")
        with lock("a", wait=0), pytest.raises(LockNotHeldError, match="Nobody else"):
            memory.release("a")
    with pytest.raises(LockNotHeldError):
        memory.release("a")


@pytest.mark.parametrize("asked", [30, None])
def test_nobody_waits_for_longer_but_gets_the_error_of_the_whole_wait(asked: float | None) -> None:
    with override_locks(held={"a"}, wait=0):
        begun = time.monotonic()
        with pytest.raises(LockTimeoutError, match="nobody waits for longer than 0 s"):
            lock("a", wait=asked).__enter__()
        with pytest.raises(LockTimeoutError):
            lock_all("b", "a", wait=asked).__enter__()
        with pytest.raises(LockNotAcquiredError) as caught:
            lock("a", wait=0).__enter__()
        assert type(caught.value) is LockNotAcquiredError
        assert time.monotonic() - begun < 10


def test_a_short_wait_stays_short_and_waits() -> None:
    with override_locks(held={"a"}, wait=0.1):
        begun = time.monotonic()
        with pytest.raises(LockTimeoutError):
            lock("a", wait=30).__enter__()
        assert 0.1 <= time.monotonic() - begun < 10
    with override_locks(held={"a"}, wait=30), pytest.raises(LockTimeoutError):
        lock("a", wait=0.01).__enter__()


# -- settings --------------------------------------------------------------------------------------

SHOP: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django_distlock.backends.table.TableBackend",
        "LOCATION": "default",
        "PREFIX": "shop",
        "TTL": 7,
        "WAIT": 3,
        "REENTRANT": True,
        "OPTIONS": {"COMMAND_TIMEOUT": 2},
    }
}


@override_settings(DISTLOCKS=SHOP)
def test_the_settings_of_the_alias_are_kept() -> None:
    with override_locks():
        conf = locks["default"].conf
        assert (conf.prefix, conf.ttl, conf.wait, conf.reentrant) == ("shop", 7, 3, True)
        assert locks["default"].command_timeout == 2
        with lock("a") as first, lock("a") as second:
            assert first.fencing_token == second.fencing_token
            assert first.ttl == 7
    with override_locks(TTL=1, REENTRANT=False):
        conf = locks["default"].conf
        assert (conf.prefix, conf.ttl, conf.reentrant) == ("shop", 1, False)


def test_the_backend_itself_is_not_needed() -> None:
    strange = {"default": {"BACKEND": "no.such.Backend", "OPTIONS": {"HOSTS": ["a"]}}}
    with override_settings(DISTLOCKS=strange), override_locks(), lock("a"):
        pass


def test_wrong_options_are_told() -> None:
    with pytest.raises(TypeError, match="LOCATION"):
        override_locks(LOCATION="x")
    with pytest.raises(InvalidLockError):
        override_locks(wait=-1)
    with pytest.raises(InvalidLockError):
        override_locks(held=[""])
    for wrong in (
        override_locks(using="missing"),
        override_locks(held={"missing": ["a"]}),
        override_locks(using="locmem", held={"default": ["a"]}),
        override_locks(TTL=-1),
        override_locks(COLOUR="red"),
    ):
        with pytest.raises(InvalidLockBackendError, match=r"missing|default|TTL|COLOUR"), wrong:
            raise NotImplementedError
    with (
        override_settings(DISTLOCKS={"default": "wrong"}),
        pytest.raises(InvalidLockBackendError, match="is a dict"),
        override_locks(),
    ):
        raise NotImplementedError


@override_settings(DISTLOCKS=SHOP)
def test_a_change_of_the_settings_stays_in_memory() -> None:
    with override_locks(held={"a"}):
        changed = {**SHOP, "second": {"BACKEND": LOCMEM}}
        changed["default"] = {**SHOP["default"], "TTL": 9}
        with override_settings(DISTLOCKS=changed):
            assert is_in_memory()
            assert is_in_memory("second")
            assert lock("a").locked()
            assert locks["default"].conf.ttl == 9
        assert is_in_memory()
        assert locks["default"].conf.ttl == 7
        locks.close_all()
        assert is_in_memory()
        assert lock("a").locked()


# -- what was there --------------------------------------------------------------------------------


def test_leases_of_before_live_on() -> None:
    with lock("a", using="locmem", ttl=0.3) as before:
        with override_locks():
            with lock("a", using="locmem", wait=0) as inside:
                assert inside.fencing_token != before.fencing_token
            time.sleep(0.4)
            before.check()  # renewed meanwhile
        before.check()
        with pytest.raises(AlreadyHeldError):
            lock("a", using="locmem").acquire()
        assert in_thread(lock("a", using="locmem", wait=0).acquire) is None
    assert not lock("a", using="locmem").locked()


def test_leases_of_before_may_end_inside() -> None:
    before = lock("a").acquire()
    assert before
    with override_locks():
        before.release()
    assert not lock("a").locked()


def test_leases_of_before_are_lost_when_the_settings_change() -> None:
    before = lock("of before").acquire()
    assert before
    with override_locks(), override_settings(DISTLOCKS=SHOP):
        assert before.lost
    locks["default"].force_release("of before")


def test_a_lease_that_outlives_the_block_is_lost() -> None:
    with override_locks():
        lease = lock("a").acquire()
        assert lease
    with pytest.raises(LeaseLostError, match="closed"):
        lease.check()


def test_blocks_nest_and_the_inner_one_stands_alone() -> None:
    with override_locks(held={"a"}, wait=0):
        outer = lock("b").acquire()
        assert outer
        with override_locks(held={"c"}):
            assert not lock("a").locked()
            assert not lock("b").locked()
            assert lock("c").locked()
            assert locks["default"].longest_wait is None
        outer.check()
        assert lock("a").locked()
        assert not lock("c").locked()


def test_one_object_used_again_and_inside_itself() -> None:
    twice = override_locks(held={"a"})
    with twice, lock("b"):
        with twice, lock("b", wait=0):
            pass
        assert twice.taken() == ["b"]
    with twice:
        assert not lock("b").locked()


def test_blocks_that_end_in_another_order() -> None:
    before = locks["default"]
    outer, inner = override_locks(held={"outer"}), override_locks(held={"inner"})
    outer.enable()
    inner.enable()
    outer.disable()
    assert lock("inner").locked()
    inner.disable()
    assert locks["default"] is before


def test_a_backend_put_in_by_hand_is_left() -> None:
    conf = locks["locmem"].conf
    with override_locks(using="locmem"):
        by_hand = LocMemBackend("locmem", conf)
        locks["locmem"] = by_hand
    assert locks["locmem"] is by_hand
    del locks["locmem"]


# -- the journal -----------------------------------------------------------------------------------


def test_what_was_taken_is_told_also_afterwards() -> None:
    with override_locks(held={"busy"}, REENTRANT=True) as memory:
        assert memory.taken() == []
        with lock("a") as lease, lock("a"):
            lease.renew()
        lock("busy").acquire(wait=0)
        with hold_elsewhere("other"), lock("a"):
            pass
        with lock("c", using="locmem"):
            pass
    assert memory.taken() == ["a", "a"]
    assert memory.taken(using="locmem") == ["c"]
    assert memory.taken(using="dummy") == []
    with pytest.raises(RuntimeError, match="not entered"):
        override_locks().taken()


def test_threads_compete_in_memory() -> None:
    counter = [0]

    def work() -> None:
        for _ in range(5):
            with lock("counter", wait=30):
                seen = counter[0]
                time.sleep(0.001)
                counter[0] = seen + 1

    with override_locks() as memory:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert counter == [20]
    assert memory.taken() == ["counter"] * 20


FORK = """
import os, traceback
from django.conf import settings
settings.configure(DISTLOCKS={"default": {"BACKEND": "no.such.Backend"}})
from django_distlock import lock, locks
from django_distlock.testing import override_locks

with override_locks(held={"busy"}):
    locks["default"].force_release("busy")
    with lock("parent"):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert type(locks["default"]).__name__ == "MemoryBackend"
                assert lock("busy").locked(), "the block begins anew in the child"
                with lock("parent", wait=0):
                    pass
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "see above"
        assert lock("parent").locked()
"""


def test_a_forked_child_stays_in_memory() -> None:
    subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", FORK],
        env={key: value for key, value in os.environ.items() if "DJANGO" not in key}
        | {"PYTHONPATH": str(ROOT.parent)},
        check=True,
        timeout=60,
    )
