"""What this process holds: the life of a hold, and finding it again."""

from __future__ import annotations

import gc
import sys
import weakref
from types import FrameType
from typing import Any

import pytest

from django_distlock.core import hold as hold_module
from django_distlock.core import registry
from django_distlock.core.hold import Hold, State
from django_distlock.core.registry import every, find, of_same_flow
from django_distlock.core.values import Claim
from django_distlock.exceptions import LeaseLostError

from .tools import UnitBackend, VirtualClock, drain, in_thread, make_hold, opened, traced


class Transaction:
    """A transaction of a caller's, as a test wants it."""

    in_testcase = False

    def __init__(self) -> None:
        self.is_open = True
        self.is_undone = False

    def open(self) -> bool:
        return self.is_open

    def undone(self) -> bool:
        return self.is_undone


# -- the life of a hold ----------------------------------------------------------------------------


def mine(hold: Hold) -> bool:
    """Tell whether the calling thread or task is the holder."""
    return find(hold.backend, hold.claim.key) is hold


def test_a_new_hold_is_active_and_mine(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    assert hold.state is State.ACTIVE
    assert hold.count == 1
    assert mine(hold)
    assert hold.holder_lives()
    assert find(backend, backend.key("a")) is hold


def test_a_hold_goes_from_one_state_to_another_only_once(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    assert not hold.move(State.RELEASING, to=State.RELEASED)
    assert hold.move(State.ACTIVE, to=State.RELEASED)
    assert not hold.move(State.ACTIVE, to=State.LOST)
    assert hold.state is State.RELEASED


def test_it_is_lost_once_and_tells_its_reason(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    told: list[Hold] = []
    hold.on_lost.append(told.append)
    assert hold.lose("the store burnt down")
    assert not hold.lose("and drowned")
    assert hold.reason == "the store burnt down"
    assert told == [hold]
    error = hold.lost_error()
    assert isinstance(error, LeaseLostError)
    assert (error.name, error.alias) == ("a", backend.alias)
    assert "the store burnt down" in str(error)
    assert "fencing token" in str(error)


def test_what_is_released_is_not_lost(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    hold.move(State.ACTIVE, to=State.RELEASED)
    assert not hold.lose("too late")
    assert hold.state is State.RELEASED


def test_whoever_sees_a_loss_sees_its_reason(backend: UnitBackend) -> None:
    # Another thread may look right after the state has changed.
    hold = make_hold(backend, "a")
    seen: list[str] = []

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == hold_module.__file__ and hold.state is State.LOST:
            sys.settrace(None)
            seen.append(str(hold.lost_error()))
            sys.settrace(trace)
        return trace

    with traced(trace):
        hold.lose("the store burnt down")
    assert seen
    assert all("the store burnt down" in text for text in seen)


def test_it_lapses_at_its_deadline() -> None:
    clock = VirtualClock()
    with opened(clock=clock) as backend:
        hold = make_hold(backend, "a", ttl=10.0)
        clock.advance(9.999)
        assert not hold.is_lost()
        clock.advance(0.001)
        assert hold.is_lost()
        assert hold.state is State.LOST
        assert "ran out" in hold.reason
        assert hold.is_lost()


def test_it_lapses_with_its_transaction(backend: UnitBackend) -> None:
    transaction = Transaction()
    hold = make_hold(backend, "a", bound=transaction)
    assert not hold.is_lost()
    transaction.is_undone = True
    assert hold.is_lost()
    assert "rolled back" in hold.reason


def test_released_holds_do_not_lapse() -> None:
    clock = VirtualClock()
    with opened(clock=clock) as backend:
        hold = make_hold(backend, "a", ttl=1.0)
        hold.move(State.ACTIVE, to=State.RELEASED)
        clock.advance(5.0)
        assert not hold.is_lost()
        assert hold.state is State.RELEASED


def test_callbacks_are_told_also_when_one_of_them_fails(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    told: list[Hold] = []

    def broken(_: Hold) -> None:
        raise RuntimeError("the event loop was closed in this very moment")

    hold.on_lost += [broken, told.append]
    assert hold.lose("gone")
    assert told == [hold]


# -- who is the holder -----------------------------------------------------------------------------


def test_another_thread_does_not_find_it(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    key = backend.key("a")
    assert in_thread(lambda: find(backend, key)) is None
    assert not in_thread(lambda: mine(hold))
    assert find(backend, key) is hold


def test_the_thread_that_adopts_it_finds_it(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    key = backend.key("a")

    def adopt() -> bool:
        hold.adopt()
        return find(backend, key) is hold and hold.holder_lives()

    assert in_thread(adopt)
    assert find(backend, key) is None
    assert not mine(hold)
    assert not hold.holder_lives(), "that thread has ended"


def test_a_thread_that_has_ended_holds_nothing_any_more(backend: UnitBackend) -> None:
    hold = in_thread(lambda: make_hold(backend, "a"))
    gc.collect()
    assert not hold.holder_lives()


def test_a_new_thread_with_the_id_of_an_old_one_is_another_holder(backend: UnitBackend) -> None:
    hold = in_thread(lambda: make_hold(backend, "a"))
    me, flow, _ = registry.party()
    hold.flow = flow
    # As if the old thread's object had lain where this thread's object lies.
    ref = next(ref for ref in registry._registry.values() if ref() is hold)
    registry._registry[(id(backend), hold.claim.key, id(me), flow)] = ref
    assert find(backend, hold.claim.key) is None
    assert not mine(hold)


def test_a_released_or_lost_hold_is_not_found(backend: UnitBackend) -> None:
    for state in (State.RELEASING, State.RELEASED, State.DETACHED, State.LOST):
        hold = make_hold(backend, "a")
        hold.move(State.ACTIVE, to=state)
        assert find(backend, backend.key("a")) is None


def test_a_hold_of_a_closed_backend_is_not_found() -> None:
    with opened() as old:
        hold = make_hold(old, "a")
    new = UnitBackend(old.alias, old.conf)
    assert find(new, hold.claim.key) is None
    assert hold.state is State.LOST


def test_other_names_and_aliases_are_not_found(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    with opened() as other:
        assert find(backend, backend.key("b")) is None
        assert find(other, other.key("a")) is None
    assert hold.state is State.ACTIVE


def test_a_hold_that_nobody_has_any_more_is_forgotten(backend: UnitBackend) -> None:
    hold = make_hold(backend, "a")
    seen = weakref.ref(hold)
    del hold
    assert seen() is None
    assert find(backend, backend.key("a")) is None


# -- all of them -----------------------------------------------------------------------------------


def test_every_active_hold_is_listed(backend: UnitBackend) -> None:
    holds = [make_hold(backend, name) for name in "abc"]
    holds[1].move(State.ACTIVE, to=State.RELEASED)
    with opened() as other:
        foreign = make_hold(other, "d")
        assert {hold.claim.name for hold in every(backend)} == {"a", "c"}
        assert {holds[0], holds[2], foreign} <= set(every())


def test_listing_goes_on_while_others_acquire(backend: UnitBackend) -> None:
    # Whoever is refused a lock looks through all holds of the process, while other threads are
    # granted theirs. Here one is granted between every two lines of the library's iteration.
    kept = [make_hold(backend, f"before {number}") for number in range(3)]
    module = weakref.__file__

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == module and event == "line" and len(kept) < 200:
            sys.settrace(None)
            kept.append(make_hold(backend, f"meanwhile {len(kept)}"))
            sys.settrace(trace)
        return trace

    with traced(trace):
        seen = list(every(backend))
    assert set(kept[:3]) <= set(seen)


def test_a_hold_of_another_task_or_thread_of_the_same_chain_is_told(backend: UnitBackend) -> None:
    registry.party()
    flow = registry._flow.get()

    def elsewhere() -> Hold:
        registry._flow.set(flow)  # as asgiref carries it to the thread of `sync_to_async`
        return make_hold(backend, "a")

    hold = in_thread(elsewhere)
    assert of_same_flow(backend, backend.key("a")) is hold
    assert of_same_flow(backend, backend.key("b")) is None
    assert find(backend, backend.key("a")) is None
    stranger = in_thread(lambda: make_hold(backend, "c"))
    assert of_same_flow(backend, stranger.claim.key) is None
    mine = make_hold(backend, "d")
    assert of_same_flow(backend, mine.claim.key) is None


def test_the_registry_does_not_grow(backend: UnitBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()
    monkeypatch.setattr(registry, "_bound", 64)  # whatever tests before have left to be swept
    kept = [make_hold(backend, f"kept {number}") for number in range(10)]
    for number in range(500):
        make_hold(backend, f"name {number}").move(State.ACTIVE, to=State.RELEASED)
    drain(backend)
    living = sum(ref() is not None for ref in registry._registry.values())
    assert len(registry._registry) <= max(64, 2 * living) + 1
    assert all(find(backend, hold.claim.key) is hold for hold in kept)


def test_the_registry_gives_back_the_memory_of_a_peak(backend: UnitBackend) -> None:
    gc.collect()
    registry._sweep()
    before = sys.getsizeof(registry._registry)
    kept = [make_hold(backend, f"kept {number}") for number in range(5000)]
    peak = sys.getsizeof(registry._registry)
    for hold in kept[10:]:
        hold.move(State.ACTIVE, to=State.RELEASED)
    assert sys.getsizeof(registry._registry) - before < (peak - before) / 5
    assert all(find(backend, hold.claim.key) is hold for hold in kept[:10])


def test_a_finalizer_may_note_a_loss_on_a_thread_that_is_doing_so(backend: UnitBackend) -> None:
    # Finalizers (of rolled-back transactions) run wherever the interpreter likes, also inside the
    # block that the mutex guards: a mutex that is not re-entrant would wait for itself for ever.
    hold = make_hold(backend, "a")
    with hold.mutex:
        again = hold.mutex.acquire(blocking=False)
    assert again
    hold.mutex.release()


# -- stores that keep locks by a session -----------------------------------------------------------


def test_a_hold_is_lost_when_its_store_is_not_sure_of_it(backend: UnitBackend) -> None:
    """Be lost at the time that the store names, though the ttl lasts for longer, or at its news."""
    hold, other = make_hold(backend, "a"), make_hold(backend, "b")
    now = backend.clock()
    until = {hold.claim.name: now + 1, other.claim.name: now + 1}

    def sure_until(claim: Claim, *, foreseen: bool = False) -> float | None:
        return None if foreseen and claim is other.claim else until[claim.name]

    backend.sure_until = sure_until  # type: ignore[method-assign]
    assert not hold.is_lost()
    assert hold.left() <= 1
    assert other.left() > 1
    until[hold.claim.name] = now
    assert hold.is_lost()
    assert "session" in hold.reason
    until[other.claim.name] = now
    states = []
    for who in (UnitBackend(backend.alias, backend.conf), backend):
        who.notice_losses()
        states.append(other.state)
    assert states == [State.ACTIVE, State.LOST]
