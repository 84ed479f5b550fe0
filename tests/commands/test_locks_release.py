"""`manage.py locks release`: the hold that was shown, and never a newer one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_distlock import LeaseLostError, LockNotHeldError, lock, locks
from django_distlock.testing import hold_elsewhere
from tests.backends.tools import SERVERS, elsewhere, lock_alias
from tests.commands.tools import Ran, run
from tests.conftest import SERVERS as STARTED


@pytest.fixture
def held(store: str, name: str) -> Iterator[Any]:
    """A lease on ``name``; lost or not, nothing is left of it."""
    lease = lock(name, using=store, renew=False).acquire(wait=0)
    assert lease is not None
    yield lease
    with suppress(LockNotHeldError):
        lease.release()


def test_release(store: str, name: str, held: Any) -> None:
    ran = Ran("locks", "release", name, "--yes")
    assert f"token      {held.fencing_token}\n" in ran.out
    assert ran.out.endswith(f"Released in {store}.\n")
    assert not lock(name, using=store).locked()
    with pytest.raises(LeaseLostError):
        held.renew()


def test_release_for_programs(store: str, name: str, held: Any) -> None:
    refused = Ran("locks", "release", name, "--format", "json")
    assert refused.failed == "With --format json nothing is asked: add --yes."
    assert lock(name, using=store).locked()
    ran = Ran("locks", "release", name, "--format", "json", "--yes")
    (freed,) = json.loads(ran.out)
    assert (freed["alias"], freed["name"]) == (store, name)
    assert freed["fencing_token"] == held.fencing_token
    nobody = Ran("locks", "release", name, "--format", "json", "--yes")
    assert json.loads(nobody.out) == []
    assert "Not held" in nobody.failed


@pytest.mark.parametrize(
    ("answer", "released"),
    [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_release_asks(store: str, name: str, held: Any, answer: str, released: bool) -> None:
    done = run("locks", "release", name, "--using", store, stdin=answer)
    assert "call site" in done.stdout
    assert "The holder is not stopped. Free it? [y/N] " in done.stdout
    assert lock(name, using=store).locked() is not released
    assert done.returncode == (0 if released else 1)
    assert done.stderr == ("" if released else "CommandError: Not released.\n")
    if released:
        with pytest.raises(LeaseLostError):
            held.renew()


def test_a_newer_holder_is_never_hit(
    store: str, name: str, held: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the operator thinks, the lock changes hands."""
    newer: list[Any] = []

    def think() -> str:
        held.release()
        newer.append(elsewhere(lock(name, using=store, renew=False).acquire))
        return "y"

    monkeypatch.setattr("builtins.input", think)
    ran = Ran("locks", "release", name, "--using", store)
    assert "Not released: token " in ran.failed
    newer[0].renew()
    newer[0].release()


def test_a_newer_holder_is_not_hit_where_there_are_no_tokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lock_alias("other", BACKEND="tests.commands.tools.NoTokens"):
        lease = lock(name, using="other").acquire()
        assert lease is not None
        newer: list[Any] = []

        def think() -> str:
            lease.release()
            newer.append(elsewhere(lock(name, using="other").acquire))
            return "y"

        monkeypatch.setattr("builtins.input", think)
        ran = Ran("locks", "release", name, "--using", "other")
        assert "Not released: another grant holds it by now" in ran.failed
        newer[0].renew()
        ran = Ran("locks", "release", name, "--using", "other", "--yes")
        assert ran.out.endswith("Released in other.\n")


def test_what_only_its_holder_can_free(name: str) -> None:
    hiding = "tests.contract.queueing.HidingBackend"
    with lock_alias("other", BACKEND=hiding), lock(name, using="other") as lease:
        ran = Ran("locks", "list", "--using", "other")
        assert (ran.out, ran.err) == ("", "other: it does not show who holds its locks.\n")
        ran = Ran("locks", "show", name, "--using", "other")
        assert ran.out.splitlines()[1:] == [f"name       {name}", "host       ?", "pid        ?"]
        ran = Ran("locks", "release", name, "--using", "other")
        assert "cannot free what another process holds" in ran.failed
        assert "Free it?" not in ran.out
        lease.renew()


def test_held_in_several_aliases(store: str, name: str) -> None:
    with hold_elsewhere(name, using=store), hold_elsewhere(name, using="locmem"):
        ran = Ran("locks", "release", name, "--yes")
        assert f"is held in locmem, {store}. Say which by --using, or --all." in ran.failed
        assert locks[store].call("inspect", name)
        assert "Released in locmem." in Ran("locks", "release", name, "--yes", using="locmem").out
    with hold_elsewhere(name, using=store), hold_elsewhere(name, using="locmem"):
        assert Ran("locks", "release", name, "--yes", "--all").out.count("Released") == 2


def test_a_name_that_cannot_be_typed(store: str, prefix: str) -> None:
    name = f"{prefix}\x00\x1b\\é"
    with hold_elsewhere(name, using=store):
        typed = prefix + r"\x00\x1b\\é"
        assert Ran("locks", "show", typed).failed
        done = run("locks", "release", typed, "--escaped", "--yes", "--using", store)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("server", SERVERS)
def test_a_store_that_hangs_at_the_release(
    server: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known what becomes of the release, and so it is said."""

    def think() -> str:
        STARTED[server].pause()
        return "y"

    monkeypatch.setattr("builtins.input", think)
    with hold_elsewhere(name, using=server):
        try:
            ran = Ran("locks", "release", name, "--limit", "0.5", using=[server])
        finally:
            STARTED[server].resume()
    assert ran.failed == (
        "The store did not answer within 0.5 s: it may be free, or not. Look at it by `locks show`"
    )
