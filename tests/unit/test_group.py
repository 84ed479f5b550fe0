"""`lock_all`: all or none, in one order, within one wait."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockBackendError,
    LockGroup,
    LockNotAcquiredError,
    LockNotHeldError,
    LockTimeoutError,
    lock,
    lock_all,
    locks,
)
from django_distlock.core.durations import UNSET
from django_distlock.core.flow import Call

from .tools import LIMIT, Down, Gate, UnitBackend, eventually, in_thread, opened


def acquired(backend: UnitBackend) -> list[str]:
    """Return the names that were asked for, in order."""
    return [name for verb, name in backend.calls if verb == "try_acquire"]


def released(backend: UnitBackend) -> list[str]:
    """Return the names that were released, in order."""
    return [name for verb, name in backend.calls if verb == "release"]


# -- the value -------------------------------------------------------------------------------------


def test_a_group_is_a_plain_value() -> None:
    group = lock_all("a", lock("b", using="other"), using="shop", ttl=5, wait=1)
    assert isinstance(group, LockGroup)
    assert group.locks == (lock("a", using="shop", ttl=5), lock("b", using="other"))
    assert pickle.loads(pickle.dumps(group)) == group
    assert hash(group) == hash(pickle.loads(pickle.dumps(group)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait": -1}, {"wait": True}, {"wait": "5"},
        {"ttl": 0}, {"on_contention": "explode"}, {"on_contention": None},
    ],
    ids=str,
)  # fmt: skip
def test_nonsense_is_refused_when_the_group_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockError):
        lock_all("a", "b", **wrong)


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(InvalidLockError):
        lock_all("a", name)


@pytest.mark.parametrize("twice", [("a", "b", "a"), ("a", "a")])
def test_a_lock_given_twice_is_refused(backend: UnitBackend, twice: tuple[str, ...]) -> None:
    group = lock_all(*twice, using=backend.alias)
    with pytest.raises(InvalidLockError, match="twice") as caught:
        group.acquire()
    assert (caught.value.name, caught.value.alias) == ("a", backend.alias)
    assert backend.calls == []


# -- all of them -----------------------------------------------------------------------------------


def test_a_block_gets_the_leases_in_the_order_given(backend: UnitBackend) -> None:
    with lock_all("c", "a", "b", using=backend.alias) as leases:
        assert [lease.name for lease in leases] == ["c", "a", "b"]
        assert all(map(backend.holds, "abc"))
    assert not any(map(backend.holds, "abc"))

    async def main() -> None:
        async with lock_all("c", "a", "b", using=backend.alias) as leases:
            assert [lease.name for lease in leases] == ["c", "a", "b"]
            assert all(map(backend.holds, "abc"))

    asyncio.run(main())
    assert not any(map(backend.holds, "abc"))


def test_the_order_of_acquiring_is_the_same_whatever_the_order_given() -> None:
    with opened() as one, opened() as other:
        orders = []
        for names in ("abcd", "dcba", "bdac"):
            members = [lock(name, using=each.alias) for name in names for each in (one, other)]
            for each in (one, other):
                each.calls.clear()
            with lock_all(*members):
                orders.append((acquired(one), acquired(other)))
        assert orders[0] == orders[1] == orders[2]


def test_the_last_taken_is_released_first(backend: UnitBackend) -> None:
    names = sorted("abcd", key=backend.key, reverse=True)
    with lock_all(*names, using=backend.alias):
        assert acquired(backend) == names[::-1]
    assert released(backend) == names


def test_two_groups_in_opposite_order_do_not_wait_for_each_other(backend: UnitBackend) -> None:
    begin = threading.Barrier(2, timeout=LIMIT)
    done: list[str] = []

    def work(names: str) -> None:
        group = lock_all(*names, using=backend.alias, wait=LIMIT)
        begin.wait()
        for _ in range(20):
            with group:
                done.append(names)

    threads = [threading.Thread(target=work, args=(names,)) for names in ("abc", "cba")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(done) == 40


def test_by_hand_it_is_a_tuple_or_none(backend: UnitBackend) -> None:
    group = lock_all("a", "b", using=backend.alias, wait=0)
    leases = group.acquire()
    assert leases is not None
    assert in_thread(group.acquire) is None
    for lease in leases:
        lease.release()
    again = asyncio.run(group.aacquire())
    assert again is not None
    for lease in again:
        lease.release()


def test_what_is_acquired_by_hand_is_released_as_one(backend: UnitBackend) -> None:
    group = lock_all("a", "b", "c", using=backend.alias, wait=0)
    order = sorted("abc", key=backend.key, reverse=True)
    leases = group.acquire()
    assert leases is not None
    assert [lease.name for lease in leases] == ["a", "b", "c"]
    leases.check()
    leases.release()
    assert released(backend) == order
    with pytest.raises(LockNotHeldError):
        leases.check()
    with pytest.raises(LockNotHeldError):
        leases.release()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(leases)

    async def main() -> None:
        again = await group.aacquire()
        assert again is not None
        await again.arelease()
        third = await group.aacquire()
        assert third is not None
        async with third:
            third[0].check()

    asyncio.run(main())
    assert released(backend) == 3 * order


def test_all_are_released_by_hand_when_one_was_lost(backend: UnitBackend) -> None:
    leases = lock_all("a", "b", "c", using=backend.alias, wait=0).acquire()
    assert leases is not None
    locks[backend.alias].force_release("b")
    with pytest.raises(LeaseLostError):
        leases.release()
    assert list(backend.held()) == []


def test_leases_are_a_block(backend: UnitBackend) -> None:
    leases = lock_all("a", "b", using=backend.alias, wait=0).acquire()
    assert leases is not None
    with leases as inside:
        assert inside is leases
        inside[0].release()
    assert list(backend.held()) == []
    with pytest.raises(LockNotHeldError), leases:
        raise AssertionError


def test_an_empty_group_needs_nothing() -> None:
    with lock_all() as leases:
        assert leases == ()
    got = lock_all().acquire()
    assert got is not None
    assert got  # obtained, as there is nothing to be obtained
    got.check()
    got.release()


# -- or none ---------------------------------------------------------------------------------------


def hold_last(backend: UnitBackend, names: str = "abc") -> Lease:
    """Have another thread hold the lock that a group over ``names`` takes last."""
    last = max(names, key=backend.key)
    lease = in_thread(lock(last, using=backend.alias).acquire)
    assert lease is not None
    backend.calls.clear()
    return lease


def test_when_one_is_held_none_is_kept(backend: UnitBackend) -> None:
    other = hold_last(backend)
    assert lock_all("a", "b", "c", using=backend.alias, wait=0).acquire() is None
    assert [name for name in "abc" if backend.holds(name)] == [other.name]
    with pytest.raises(LockNotAcquiredError) as caught:
        lock_all("a", "b", "c", using=backend.alias, wait=0).__enter__()
    assert caught.value.name == other.name
    assert [name for name in "abc" if backend.holds(name)] == [other.name]


def test_when_the_store_fails_none_is_kept(backend: UnitBackend) -> None:
    last = max("abc", key=backend.key)
    backend.gates["try_acquire"] = Gate(only=lambda: fail_for(backend, last))
    with pytest.raises(LockBackendError):
        lock_all("a", "b", "c", using=backend.alias).acquire()
    assert eventually(lambda: not any(map(backend.holds, "abc")))


def fail_for(backend: UnitBackend, name: str) -> bool:
    """Have the store fail when it is asked for ``name``; never stop a call."""
    if backend.calls[-1] == ("try_acquire", name):
        backend.before["try_acquire"].append(Down("x"))
    return False


@pytest.mark.parametrize("end", [KeyboardInterrupt, asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_however_often_it_is_interrupted_none_is_kept(
    backend: UnitBackend, end: type[BaseException], times: int
) -> None:
    # Each interruption comes at a release: the others still have to be released.
    other = hold_last(backend)
    flow = lock_all("a", "b", "c", using=backend.alias, wait=60)._obtain(60)
    step = next(flow)
    while not (isinstance(step, Call) and step.verb == "pause"):
        step = flow.send(step.do())
    steps = [flow.throw(end())]

    def go_on() -> None:
        while True:
            step = steps[-1]
            if isinstance(step, Call) and step.verb == "release" and len(interrupted) < times - 1:
                interrupted.append(step)
                steps.append(flow.throw(end()))
            else:
                steps.append(flow.send(step.do()))

    interrupted: list[Call] = []
    with pytest.raises(end):
        go_on()
    assert len(interrupted) == times - 1
    assert eventually(lambda: [name for name in "abc" if backend.holds(name)] == [other.name])


def test_a_flow_that_is_dropped_keeps_none(backend: UnitBackend) -> None:
    other = hold_last(backend)
    flow = lock_all("a", "b", "c", using=backend.alias, wait=60)._obtain(60)
    step = next(flow)
    while not (isinstance(step, Call) and step.verb == "pause"):
        step = flow.send(step.do())
    flow.close()
    assert eventually(lambda: [name for name in "abc" if backend.holds(name)] == [other.name])


def test_a_lease_that_ran_out_while_waiting_for_the_last_is_no_success(
    backend: UnitBackend,
) -> None:
    other = hold_last(backend)
    first = min("abc", key=backend.key)

    def free_when_first_is_gone() -> None:
        assert eventually(lambda: backend.holds(first))
        backend.drop(first)
        assert eventually(lambda: backend.count("renew") > 0)
        other.release()

    thread = threading.Thread(target=free_when_first_is_gone)
    thread.start()
    with pytest.raises(LeaseLostError) as caught:
        lock_all("a", "b", "c", using=backend.alias, ttl=0.3, wait=LIMIT).acquire()
    thread.join(LIMIT)
    assert caught.value.name == first
    assert not any(map(backend.holds, "abc"))


def test_what_one_holds_already_is_an_error(backend: UnitBackend) -> None:
    with lock("b", using=backend.alias), pytest.raises(AlreadyHeldError):
        lock_all("a", "b", "c", using=backend.alias).acquire()
    assert not any(map(backend.holds, "abc"))


def test_a_reentrant_group_nests(backend: UnitBackend) -> None:
    group = lock_all("a", "b", using=backend.alias, reentrant=True)
    with group, group as leases:
        assert len(leases) == 2
    assert not any(map(backend.holds, "ab"))


# -- one wait --------------------------------------------------------------------------------------


def test_who_waited_for_a_group_is_told_of_a_timeout() -> None:
    # The first member used up all of the wait; that is no "tried once".
    class Slow(UnitBackend):
        def try_acquire(self, claim: Any, limit: float) -> Any:
            answer = super().try_acquire(claim, limit)
            clock_now[0] += 5.0
            return answer

    clock_now = [1000.0]
    with opened(Slow, clock=lambda: clock_now[0]) as backend:
        first, last = sorted("ab", key=backend.key)
        held = in_thread(lock(last, using=backend.alias, ttl=600, renew=False).acquire)
        assert held is not None
        with pytest.raises(LockTimeoutError, match="Waited 5 s") as caught:
            lock_all("a", "b", using=backend.alias, wait=5, ttl=600, renew=False).__enter__()
        assert caught.value.name == last
        assert acquired(backend).count(last) == 2, "by the holder, and once: no wait was left"
        assert not backend.holds(first)


def test_the_wait_of_the_alias_is_the_default() -> None:
    with opened(wait=0.0) as backend:
        held = hold_last(backend, "ab")
        assert lock_all("a", "b", using=backend.alias).acquire() is None
        assert backend.count("try_acquire") == 2
        held.release()


# -- at the end ------------------------------------------------------------------------------------


def test_all_are_released_when_one_was_lost(backend: UnitBackend) -> None:
    with pytest.raises(LeaseLostError) as caught, lock_all("a", "b", "c", using=backend.alias):
        backend.force_release("b")
    assert caught.value.name == "b"
    assert not any(map(backend.holds, "abc"))


def test_all_are_released_when_the_store_fails_for_one(backend: UnitBackend) -> None:
    with pytest.raises(LockBackendError), lock_all("a", "b", "c", using=backend.alias):
        backend.before["release"].append(Down("x"))
    assert eventually(lambda: not any(map(backend.holds, "abc")))


def test_one_may_be_released_before_the_end(backend: UnitBackend) -> None:
    with lock_all("a", "b", using=backend.alias) as (first, _):
        first.release()
        assert not backend.holds("a")
    assert not backend.holds("b")


# -- a member that wants its loss to cancel --------------------------------------------------------


def test_the_loss_of_a_member_that_wants_it_cancels(backend: UnitBackend) -> None:
    wanting = lock("b", using=backend.alias, cancel_on_lost=True)

    async def body() -> None:
        async with lock_all(lock("a", using=backend.alias), wanting) as leases:
            leases[1]._hold.lose("gone")
            await asyncio.sleep(LIMIT)
            pytest.fail("it was not cancelled")

    with pytest.raises(LeaseLostError) as caught:
        asyncio.run(body())
    assert caught.value.name == "b"


def test_the_loss_of_another_member_does_not_cancel(backend: UnitBackend) -> None:
    wanting = lock("b", using=backend.alias, cancel_on_lost=True)
    ended: list[bool] = []

    async def body() -> None:
        async with lock_all(wanting, lock("a", using=backend.alias)) as leases:
            leases[1]._hold.lose("gone")
            await asyncio.sleep(0.05)
            ended.append(True)

    with pytest.raises(LeaseLostError) as caught:
        asyncio.run(body())
    assert caught.value.name == "a"
    assert ended == [True]


# -- options that would do nothing -----------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"ttl": 5}, {"renew": False}, {"metadata": {}}, {"using": "other"}], ids=str
)
def test_options_that_no_member_heeds_are_refused(options: dict[str, Any]) -> None:
    (named,) = options
    with pytest.raises(InvalidLockError, match=named):
        lock_all(lock("a"), lock("b"), **options)
    lock_all("a", lock("b"), **options)
    lock_all(**options)  # a list of names may be empty


def test_an_option_that_does_not_exist_is_refused() -> None:
    for members in (("a",), (lock("a"),)):
        with pytest.raises((TypeError, InvalidLockError), match="tll"):
            lock_all(*members, tll=7)  # type: ignore[call-overload]


def test_a_member_that_answers_contention_itself_is_refused() -> None:
    with pytest.raises(InvalidLockError, match="decorators"):
        lock_all("a", lock("b", on_contention="skip"))


@pytest.mark.parametrize(
    ("waits", "expected"), [((5, 0, 7), 0), ((None, 3), 3), ((None, None), None), ((), 10)]
)
def test_without_a_wait_of_its_own_it_waits_as_its_least_patient_member(
    backend: UnitBackend, waits: tuple[float | None, ...], expected: float | None
) -> None:
    members = [lock(f"{at}", using=backend.alias, wait=wait) for at, wait in enumerate(waits)]
    group = lock_all(*members) if members else lock_all("a", using=backend.alias)
    assert group._patience(UNSET) == expected
    assert group._patience(4) == 4
    assert lock_all("a", *members, wait=2)._patience(UNSET) == 2
