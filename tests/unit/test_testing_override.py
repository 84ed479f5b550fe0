"""`override_locks`: locks in memory in the place of the stores."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest

from django_distlock import (
    AlreadyHeldError,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
    lock_all,
    locks,
)
from django_distlock.testing import hold_elsewhere, override_locks

from .graph import ROOT
from .tools import in_thread, is_in_memory

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
        with lock("a", wait=0), pytest.raises(LockNotHeldError, match="No other holder"):
            memory.release("a")
    with pytest.raises(LockNotHeldError):
        memory.release("a")


@pytest.mark.parametrize("asked", [30, None])
def test_nobody_waits_for_longer_but_gets_the_error_of_the_whole_wait(asked: float | None) -> None:
    with override_locks(held={"a"}, wait=0):
        begun = time.monotonic()
        with pytest.raises(LockTimeoutError, match="Waits are limited here to 0 s"):
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
