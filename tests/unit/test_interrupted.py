"""An interruption between the grant and the block: the lock does not stay with nobody."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import django_distlock
from django_distlock import lock
from django_distlock.core import blocks, registry
from django_distlock.core.backoff import delays
from django_distlock.core.blocks import Guard, innermost
from django_distlock.core.watchdog import watchdog
from django_distlock.signals import lock_acquired, lock_released

from .tools import UnitBackend, eventually, traced


def test_an_interruption_while_it_is_told_of_the_grant_frees_it(backend: UnitBackend) -> None:
    def receive(**given: Any) -> None:
        raise KeyboardInterrupt

    lock_acquired.connect(receive)
    try:
        with pytest.raises(KeyboardInterrupt):
            lock("a", using=backend.alias).acquire()
    finally:
        lock_acquired.disconnect(receive)
    assert not backend.holds("a")


def test_an_interruption_between_the_grant_and_the_lease_frees_it(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(hold: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watchdog, "watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lock("a", using=backend.alias, ttl=60).acquire()
    assert eventually(lambda: not backend.holds("a"))


def test_an_interruption_while_a_block_is_entered_leaves_nothing(backend: UnitBackend) -> None:
    # Ctrl-C or a soft time limit comes when the lease has been put on the stack and the block has
    # not begun: nobody would ever take it off, and it would be renewed for ever.
    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is blocks.push.__code__:
            if event == "return":
                raise KeyboardInterrupt
            return trace
        return trace if frame.f_code.co_name == "__enter__" else None

    mine = lock("a", using=backend.alias, ttl=60)
    with traced(trace), pytest.raises(KeyboardInterrupt):
        mine.__enter__()
    left = innermost(mine)
    assert left is None, "the lease stays entered"
    assert eventually(lambda: not backend.holds("a"))


def test_an_interruption_before_a_block_is_entered_spares_the_one_around_it(
    backend: UnitBackend,
) -> None:
    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is blocks.push.__code__:
            raise KeyboardInterrupt
        return trace

    mine = lock("a", using=backend.alias, reentrant=True)
    with mine as outer:
        with traced(trace), pytest.raises(KeyboardInterrupt):
            mine.__enter__()
        outer.check()
    assert outer.remaining() == 0
    assert not backend.holds("a")


@pytest.fixture(params=[False, True], ids=["untold", "told"])
def receivers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether anybody is told of it, by a signal: that is a way of its own."""

    def receive(**facts: Any) -> None: ...

    signals = (lock_acquired, lock_released) if request.param else ()
    for signal in signals:
        signal.connect(receive)
    yield
    for signal in signals:
        signal.disconnect(receive)


@pytest.mark.usefixtures("receivers")
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
def test_an_interruption_at_any_call_of_a_block_frees_it(
    backend: UnitBackend, nested: bool
) -> None:
    """Ctrl-C at each call of a function of the package in turn: nothing is left in the store.

    But for that of leaving a block, which has done nothing yet. Python lets a signal in when a
    function begins and not between any two lines: not before a `with` lets its mutex go.
    """
    package = str(Path(django_distlock.__file__).parent)
    spared = (Guard.__exit__.__code__, delays.__code__)  # a generator's end is a call, too
    calls = 0
    at = 0
    names: list[str] = []

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal calls
        code = frame.f_code
        if code.co_filename.startswith(package) and code not in spared:
            calls += 1
            if calls == at:
                raise KeyboardInterrupt

    def block(name: str) -> None:
        mine = lock(name, using=backend.alias, ttl=600, reentrant=True)
        with traced(trace), mine:
            if nested:
                with mine:
                    pass

    while calls >= at:
        calls, at = 0, at + 1
        names.append(f"call {at}")
        with suppress(KeyboardInterrupt):
            block(names[-1])
        assert blocks._entered == {}
    assert at > 50, "it is no longer the package that is traced"
    assert eventually(lambda: not any(map(backend.holds, names)))
    assert [hold for hold in registry.every(backend) if hold.claim.name in names] == []


def test_a_handler_may_use_locks_at_any_step_of_a_block(backend: UnitBackend) -> None:
    """A signal's handler that takes another lock, before each step of the interpreter in turn.

    Python lets handlers in at some of them only, which differ between its versions.
    """
    package = str(Path(django_distlock.__file__).parent)
    moment, reached = 0, True
    while reached:
        mine, others = (lock(f"{each} {moment}", using=backend.alias) for each in ("mine", "other"))
        step, reached = 0, False

        def trace(frame: FrameType, event: str, arg: Any, moment: int = moment) -> Any:
            nonlocal step, reached
            if not frame.f_code.co_filename.startswith(package):
                return None
            frame.f_trace_opcodes = True
            step += event == "opcode"
            if step > moment and not reached:
                reached = True
                sys.settrace(None)
                registry._bound = 0  # so that it sweeps
                with others as lease:  # noqa: B023 - called at once
                    lease.check()
                sys.settrace(trace)
            return trace

        with traced(trace), mine as lease:
            bucket, number = lease._hold.entry or ({}, 0)
            assert number in bucket
        assert number not in bucket
        assert not mine.locked()
        assert not others.locked()
        moment += 1
    assert moment > 1000
