"""The states of a hold: what the architecture page draws is what happens, and all of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from django_distlock import Lease, LeaseLostError, LockBackendError, lock
from django_distlock.core.hold import Hold, State

from .graph import ROOT
from .tools import Down, UnitBackend, drain

PAGE = ROOT.parent / "docs" / "explanation" / "architecture.md"
SLOT: Any = Hold.__dict__["state"]


class Watched:
    """Takes the place of the slot ``state``, and notes each transition: all under the mutex."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __get__(self, hold: Hold, kind: type[Hold]) -> Any:
        return SLOT.__get__(hold, kind)

    def __set__(self, hold: Hold, state: State) -> None:
        try:
            before = SLOT.__get__(hold, Hold).name
        except AttributeError:
            before = "[*]"  # it is being made
        else:
            assert hold.mutex._is_owned()  # type: ignore[attr-defined]
        self.seen.add((before, state.name))
        SLOT.__set__(hold, state)


def test_the_transitions_are_those_of_the_page(
    backend: UnitBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = re.findall(r"^ +(\S+) --> (\S+): ", PAGE.read_text(encoding="utf-8"), re.M)
    watched = Watched()
    monkeypatch.setattr(Hold, "state", watched)

    def take() -> Lease:
        lease = lock("a", using=backend.alias).acquire()
        assert lease is not None
        return lease

    take().release()
    Lease.attach(take().detach()).release()

    expired = take()
    expired._hold.deadline = 0.0
    assert expired.lost
    backend.force_release("a")

    forced = take()
    backend.drop("a")
    with pytest.raises(LeaseLostError):
        forced.release()

    failed = take()
    backend.before["release"].append(Down("for a moment"))
    with pytest.raises(LockBackendError):
        failed.release()
    failed.release()

    interrupted = take()
    backend.before["release"].append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        interrupted.release()
    drain(backend)

    take()._drop()
    drain(backend)
    assert not backend.holds("a")
    assert sorted(watched.seen) == sorted(drawn)
