"""`advance_clock`: time passes for locks in memory without waiting for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_distlock import (
    InvalidLockError,
    Lease,
    LeaseLostError,
    LockNotAcquiredError,
    lock,
    locks,
)
from django_distlock.core.values import Claim
from django_distlock.metrics import Measurement, listen
from django_distlock.testing import (
    aadvance_clock,
    advance_clock,
    assert_free,
    assert_held,
    expire_lease,
    hold_elsewhere,
    override_locks,
)

from .tools import Gate, eventually, in_thread


@pytest.fixture
def memory() -> Iterator[override_locks]:
    """Locks in memory with a ttl of 30 s."""
    with override_locks(TTL=30) as memory:
        yield memory


def take(name: str, **options: Any) -> Lease:
    lease: Lease | None = lock(name, **options).acquire()
    assert lease
    return lease


@pytest.mark.usefixtures("memory")
class TestTurned:
    def test_a_lease_of_a_paused_process_is_lost(self, lost: list[dict[str, Any]]) -> None:
        told: list[str] = []
        lease = take("a")
        lease.on_lost(lambda each: told.append(each.name))
        advance_clock(31)
        assert told == ["a"]
        assert [each["name"] for each in lost] == ["a"]
        assert lease.lost
        assert lease.remaining() == 0
        with pytest.raises(LeaseLostError, match="ttl ran out"):
            lease.check()
        with pytest.raises(LeaseLostError):
            lease.release()

    def test_others_can_take_it(self) -> None:
        lease = take("a")
        advance_clock(31)
        assert_free("a")
        second = in_thread(lock("a", wait=0).acquire)
        assert second
        assert second.fencing_token > lease.fencing_token

    def test_what_lasts_is_renewed_at_once(self) -> None:
        lease = take("a")
        advance_clock(25)
        assert 20 < lease.remaining() < 30
        info = assert_held("a")
        assert info.acquired_at is not None
        assert info.expires_at is not None
        assert 50 < (info.expires_at - info.acquired_at).total_seconds() < 85
        advance_clock(25)
        lease.release()

    def test_what_is_not_renewed_is_older(self) -> None:
        lease = take("a", renew=False)
        advance_clock(timedelta(seconds=20))
        assert 5 < lease.remaining() < 10
        advance_clock(5, renew=True)
        assert 0 < lease.remaining() < 5
        lease.check()
        advance_clock(5, renew=True)
        assert lease.lost

    def test_no_renewal_before_its_time(self) -> None:
        lease = take("a")
        advance_clock(5)
        assert 15 < lease.remaining() < 25

    def test_the_watchdog_may_go_on(self) -> None:
        renewed: list[str] = []

        def note(measurement: Measurement) -> None:
            if measurement.outcome == "renewed":
                renewed.append(measurement.name)

        lease = take("a")
        stop = listen(note)
        try:
            advance_clock(3600, renew=True)
        finally:
            stop()
        assert len(renewed) >= 120
        assert lease.remaining() > 15
        lease.release()

    def test_not_past_max_hold(self) -> None:
        lease = take("a", max_hold=60)
        advance_clock(50, renew=True)
        lease.check()
        advance_clock(45, renew=True)
        with pytest.raises(LeaseLostError):
            lease.check()

    def test_not_for_a_holder_that_has_ended(self) -> None:
        lease = in_thread(lambda: take("a"))
        advance_clock(31, renew=True)
        assert lease.lost

    def test_somebody_else_who_crashed_expires(self) -> None:
        with hold_elsewhere("a", ttl=30), hold_elsewhere("b"):
            with pytest.raises(LockNotAcquiredError) as caught:
                lock("a", wait=0).__enter__()
            assert caught.value.retry_after is not None
            assert 20 < caught.value.retry_after <= 30
            advance_clock(31)
            with lock("a", wait=0):
                assert_held("b")

    def test_somebody_else_who_lives_renews(self) -> None:
        with hold_elsewhere("a"):
            advance_clock(1_000_000)
            with pytest.raises(LockNotAcquiredError) as caught:
                lock("a", wait=0).__enter__()
            assert caught.value.retry_after is not None
            assert 20 < caught.value.retry_after <= 30
            advance_clock(1_000_000)
            assert [info.name for info in locks["default"].held()] == ["a"]
            advance_clock(1_000_000)
            assert_held("a")

    def test_those_who_hold_a_lock_with_us(self) -> None:
        with hold_elsewhere("many", shared=True), hold_elsewhere("few", limit=2) as other:
            mine, slot = take("many", shared=True), take("few", limit=2)
            assert {other.slot, slot.slot} == {0, 1}
            advance_clock(25)
            assert len(lock("many").holders()) == 2
            advance_clock(25)
            mine.release()
            slot.release()
            assert [info.shared for info in lock("many").holders()] == [True]
            with pytest.raises(LockNotAcquiredError, match="Shared by"):
                lock("many", wait=0).__enter__()
            with pytest.raises(InvalidLockError, match="limit=2"):
                lock("few", limit=3, wait=0).acquire()
        assert_free("many")
        assert_free("few")

    def test_those_who_share_and_crashed_expire(self) -> None:
        with hold_elsewhere("many", shared=True, ttl=30):
            advance_clock(20)
            mine = take("many", shared=True)
            advance_clock(11)
            assert len(lock("many").holders()) == 1
            mine.release()
            assert_free("many")

    def test_a_detached_lease_expires(self) -> None:
        handle = take("a").detach()
        advance_clock(31)
        with pytest.raises(LeaseLostError):
            Lease.attach(handle)

    def test_what_is_lost_stays_so(self) -> None:
        lease = take("a")
        expire_lease(lease)
        advance_clock(1)
        assert lease.lost

    def test_a_lock_that_was_forced_is_lost(self) -> None:
        lease = take("a")
        locks["default"].force_release("a")
        advance_clock(15)
        with pytest.raises(LeaseLostError, match="not ours any more"):
            lease.check()

    def test_waiting_goes_by_the_real_clock(self) -> None:
        begun = time.monotonic()
        with hold_elsewhere("a"):
            advance_clock(1000)
            assert lock("a").acquire(wait=0.05) is None
        assert time.monotonic() - begun < 10

    def test_in_async_code(self) -> None:
        told: list[str] = []

        async def main() -> None:
            async with lock("a", cancel_on_lost=True) as lease:
                lease.on_lost(lambda each: told.append(each.name))
                await aadvance_clock(31)
                assert told == ["a"]
                await asyncio.sleep(10)
                raise NotImplementedError

        with pytest.raises(LeaseLostError):
            asyncio.run(main())

    def test_one_alias(self) -> None:
        first, second = take("a"), take("a", using="locmem")
        advance_clock(31, using="locmem")
        assert second.lost
        first.check()
        advance_clock(31, using=["default"])
        assert first.lost

    @pytest.mark.parametrize("seconds", [None, -1, True, "1", float("inf")])
    def test_only_forwards(self, seconds: Any) -> None:
        with pytest.raises(InvalidLockError, match="seconds"):
            advance_clock(seconds)
        advance_clock(0)


def test_the_watchdogs_thread_goes_by_the_turned_clock() -> None:
    """Short leases, taken before and after a long turn, are renewed and noticed in real time."""
    with override_locks(TTL=3):
        before = take("before")
        dying = take("dying", ttl=31.0, renew=False)
        advance_clock(30.8, renew=True)
        after = take("after")
        short = take("short", ttl=0.3, renew=False)
        assert eventually(lambda: dying._hold.state.value == "lost", 5)
        assert eventually(lambda: short._hold.state.value == "lost", 5)
        time.sleep(3.3)  # for longer than they last without a renewal
        before.check()
        after.check()


def test_a_renewal_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lease would count from the old time and outlive the lock in the store."""
    with override_locks(TTL=0.9):
        backend = locks["default"]
        gate, renew_many = Gate(), backend.renew_many
        turned = threading.Event()

        def gated(claims: Sequence[Claim]) -> list[bool]:
            gate.pass_through()
            return renew_many(claims)

        def turn() -> None:
            advance_clock(0.1)
            turned.set()

        monkeypatch.setattr(backend, "renew_many", gated)
        with lock("a") as lease:
            assert gate.entered.wait(10)
            thread = threading.Thread(target=turn)
            thread.start()
            assert not turned.wait(0.1)
            gate.open.set()
            thread.join(10)
            info = backend.inspect("a")
            assert info is not None
            assert info.expires_at is not None
            in_store = (info.expires_at - datetime.now(UTC)).total_seconds()
            assert lease.remaining() < in_store + 0.002


def test_only_locks_in_memory() -> None:
    with pytest.raises(InvalidLockError, match=r"use override_locks\(\)"):
        advance_clock(1)
    with override_locks(using="locmem"):
        advance_clock(1)
        advance_clock(1, using="locmem")
        with pytest.raises(InvalidLockError, match="'default'"):
            advance_clock(1, using=["locmem", "default"])


def test_leases_of_other_aliases_are_left() -> None:
    with lock("a") as lease, override_locks(using="locmem"):
        advance_clock(3600)
        assert lease.remaining() > 20
    with lock("a") as lease:
        with override_locks():
            advance_clock(3600)
        assert lease.remaining() > 20
