"""`lock_all` on a store that takes several claims at once: what goes wrong half way leaves none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    LockTimeoutError,
    lock,
    lock_all,
)
from django_distlock.core.flow import Flow
from django_distlock.core.values import Claim, Grant
from django_distlock.signals import lock_acquired, lock_failed

from .tools import Conflict, Down, UnitBackend, drain, eventually, in_thread, opened

NAMES = "abcdefg"


class ManyBackend(UnitBackend):
    """A store that takes three claims at once, and each again where the caller asks alone."""

    at_once = 3

    def try_acquire_many(self, claims: Sequence[Claim], limit: float) -> list[Grant | None]:
        def act() -> list[Grant | None]:
            attempt = super(UnitBackend, self).try_acquire
            answers = [attempt(claim, limit) for claim in claims]
            return [each if isinstance(each, Grant) else None for each in answers]

        return self._do("try_acquire_many", named(claims), act)

    def release_many(self, claims: Sequence[Claim]) -> list[bool]:
        def act() -> list[bool]:
            return [super(UnitBackend, self).release(claim) for claim in claims]

        return self._do("release_many", named(claims), act)

    def free(self) -> bool:
        """Tell whether no name is held."""
        return not any(map(self.holds, NAMES))


def named(claims: Sequence[Claim]) -> str:
    return "".join(claim.name for claim in claims)


@pytest.fixture
def backend() -> Iterator[ManyBackend]:
    with opened(ManyBackend) as backend:
        assert isinstance(backend, ManyBackend)
        # By their names, so that a test can say what comes first.
        backend.key = lambda name: name  # type: ignore[method-assign]
        yield backend


def test_as_many_at_once_as_the_store_takes(backend: ManyBackend) -> None:
    for block in (sync_block, async_block):
        backend.calls.clear()
        block(backend)
        assert backend.calls == [
            ("try_acquire_many", "abc"), ("try_acquire_many", "def"), ("try_acquire", "g"),
            ("release_many", "abc"), ("release_many", "def"), ("release", "g"),
        ]  # fmt: skip
        assert backend.free()


def sync_block(backend: ManyBackend) -> None:
    with lock_all(*NAMES, using=backend.alias) as leases:
        assert all(map(backend.holds, NAMES))
        assert [lease.name for lease in leases] == list(NAMES)


def async_block(backend: ManyBackend) -> None:
    async def main() -> None:
        async with lock_all(*NAMES, using=backend.alias):
            assert all(map(backend.holds, NAMES))

    asyncio.run(main())


def test_each_is_told_of(backend: ManyBackend) -> None:
    told: list[str] = []

    def receive(*, name: str, **facts: Any) -> None:
        told.append(name)

    lock_acquired.connect(receive)
    try:
        with lock_all(*NAMES, using=backend.alias):
            assert told == list(NAMES)
    finally:
        lock_acquired.disconnect(receive)


@pytest.mark.parametrize("options", [{"shared": True}, {"limit": 2}], ids=str)
def test_what_several_may_hold_is_asked_for_alone(
    backend: ManyBackend, options: dict[str, Any]
) -> None:
    with lock_all("a", "b", using=backend.alias, **options):
        pass
    assert {verb for verb, _ in backend.calls} == {"try_acquire", "release"}


def test_what_is_held_already_is_nested(backend: ManyBackend) -> None:
    with lock("b", using=backend.alias, reentrant=True):
        with lock_all(*"abcd", using=backend.alias, reentrant=True) as leases:
            assert [lease._hold.count for lease in leases] == [1, 2, 1, 1]
        assert [name for name in NAMES if backend.holds(name)] == ["b"]


def test_only_what_comes_before_is_held_while_waiting(backend: ManyBackend) -> None:
    lease = in_thread(lock("b", using=backend.alias).acquire)
    assert lease is not None
    group = lock_all(*"abcd", using=backend.alias, wait=0.2)
    with pytest.raises(LockTimeoutError) as refused:
        group.__enter__()
    assert refused.value.name == "b"
    assert backend.calls[1:5] == [
        ("try_acquire_many", "abc"),
        ("release_many", "c"),
        ("try_acquire", "b"),
        ("try_acquire", "b"),
    ]
    lease.release()
    assert backend.free()


@pytest.mark.parametrize("verb", ["try_acquire_many", "release_many"])
@pytest.mark.parametrize("answered", [False, True])
def test_a_conflict(backend: ManyBackend, verb: str, answered: bool) -> None:
    """Ask again, for each by itself."""
    (backend.after if answered else backend.before)[verb].append(Conflict("try again"))
    with lock_all(*"abc", using=backend.alias, wait=5) as leases:
        assert all(map(backend.holds, "abc"))
        for lease in leases:
            lease.check()
    drain(backend)
    assert backend.free()


@pytest.mark.parametrize("answered", [False, True])
def test_a_store_that_is_down(backend: ManyBackend, answered: bool) -> None:
    """Name the lock, tell of it once, and leave none."""
    told: list[str] = []

    def receive(*, name: str, **facts: Any) -> None:
        told.append(name)

    lock_failed.connect(receive)
    try:
        (backend.after if answered else backend.before)["try_acquire_many"].append(Down("gone"))
        with pytest.raises(LockBackendError, match="acquiring") as failed:
            lock_all(*"abc", using=backend.alias).acquire()
    finally:
        lock_failed.disconnect(receive)
    assert (failed.value.name, told) == ("a", ["a"])
    assert eventually(backend.free)


def test_a_release_that_fails(backend: ManyBackend) -> None:
    """Raise it, and release all of them in the background."""
    backend.before["release_many"].append(Down("gone"))
    with (
        pytest.raises(LockBackendError, match="releasing"),
        lock_all(*"abc", using=backend.alias),
    ):
        pass
    assert eventually(backend.free)


def test_one_that_was_lost(backend: ManyBackend) -> None:
    with pytest.raises(LeaseLostError) as lost, lock_all(*"abc", using=backend.alias):
        backend.drop("b")
    assert lost.value.name == "b"
    assert backend.free()


@pytest.mark.parametrize("verb", ["try_acquire_many", "release_many"])
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
def test_an_interruption(
    backend: ManyBackend, verb: str, answered: bool, error: type[BaseException]
) -> None:
    (backend.after if answered else backend.before)[verb].append(error())
    group = lock_all(*"abc", using=backend.alias)
    with pytest.raises(error):
        run(group._obtain(0)).release()
    assert eventually(backend.free)


def run(flow: Flow[Any]) -> Any:
    """Drive a flow of a store that fails by any error."""
    from django_distlock.core.flow import run as drive

    return drive(flow)


def test_the_guard_of_a_test_without_a_database(backend: ManyBackend) -> None:
    """Ask for nothing more: in the background it is not there, and the store is the program's."""
    backend.before["try_acquire_many"].append(AssertionError("no database in this test"))
    with pytest.raises(AssertionError):
        lock_all(*"abc", using=backend.alias).acquire()
    drain(backend)
    assert backend.calls == [("try_acquire_many", "abc")]


@pytest.mark.parametrize("held", ["", "b"])
def test_a_driver_that_goes_away(backend: ManyBackend, held: str) -> None:
    """Leave none when the flow is closed after any of its steps."""
    steps = 0
    ended = False
    while not ended:
        lease = in_thread(lock(held, using=backend.alias).acquire) if held else None
        flow: Any = lock_all(*"abcde", using=backend.alias)._obtain(5)
        answer = None
        for _ in range(steps):
            try:
                step = flow.send(answer)
            except StopIteration as stop:
                stop.value.release()
                ended = True
                break
            if lease is not None and step.verb == "pause":
                lease.release()
                lease = None
            answer = step.do()
        flow.close()
        if lease is not None:
            lease.release()
        assert eventually(backend.free)
        steps += 1
    assert steps > 2
