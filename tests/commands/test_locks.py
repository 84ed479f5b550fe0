"""`manage.py locks`: list, watch and show."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from django_distlock import Holder, Lease, LockBackendError, LockInfo, lock, locks
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.core.text import duration
from django_distlock.core.values import Claim, Grant, HolderInfo
from django_distlock.testing import hold_elsewhere
from tests.backends.tools import SERVERS, database_alias, elsewhere, lock_alias, unreachable
from tests.commands.tools import LIMIT, Ran, end, line, run, started
from tests.conftest import SERVERS as STARTED

HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\n\u202egnp.exe\x00" + "x" * 300


def listed(*options: str) -> dict[str, list[str]]:
    """Return the names that are listed, by alias."""
    ran = Ran("locks", "list", "--format", "json", *options)
    names = {
        each["alias"]: [info["name"] for info in each["locks"]] for each in json.loads(ran.out)
    }
    return {alias: held for alias, held in names.items() if held}


def sharing(store: str) -> list[str]:
    """Return the aliases of the same lock table and PREFIX: to them its locks are theirs."""
    return [alias for alias in locks if alias == store or alias.startswith(f"{store} ")]


# -- list ----------------------------------------------------------------------------------------


class DownBackend(LocMemBackend):
    """A store that is down."""

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        raise LockBackendError("refused", alias=self.alias)


def test_a_store_that_is_down_is_not_listed_as_free(prefix: str) -> None:
    down = {"BACKEND": f"{__name__}.DownBackend"}
    with lock_alias("is down", **down), lock(f"{prefix}:a", using="locmem"):
        choice = ("locks", "list", "--using", "is down", "--using", "locmem")
        ran = Ran(*choice, prefix=prefix)
        assert ran.out.splitlines()[-1] == "1 lock in 1 of 2 stores; 1 could not be read."
        assert (ran.code, "refused" in ran.err) == (1, True)
        ran = Ran(*choice, prefix=f"{prefix}:none")
        assert ran.out == "0 locks in 1 of 2 stores; 1 could not be read.\n"
        assert ran.code == 1


def test_aliases_of_one_store_list_a_lock_once(prefix: str) -> None:
    same = {"BACKEND": "django_distlock.backends.locmem.LocMemBackend", "LOCATION": prefix}
    with lock_alias("one", **same), lock_alias("two", **same), lock(f"{prefix}:a", using="two"):
        ran = Ran("locks", "list", "--using", "one", "--using", "two", prefix=prefix)
        assert [line.split()[0] for line in ran.out.splitlines()] == ["ALIAS", "one"]


def test_the_list_names_who_holds_what(store: str, prefix: str) -> None:
    with lock(f"{prefix}:a", using=store, ttl=90) as lease, lock(f"{prefix}:b", using=store):
        ran = Ran("locks", "list", "--using", store, "--prefix", prefix)
    heading, first, second = ran.out.splitlines()
    assert heading.split() == [
        "ALIAS",
        "NAME",
        "HOLDER",
        "HELD",
        "FOR",
        "TTL",
        "LEFT",
        "TOKEN",
        "WAITERS",
    ]
    who = rf"\S+ pid {os.getpid()}, MainThread"
    when = rf"\d+s +1m\d\ds +{lease.fencing_token} +(0|-)"
    assert re.fullmatch(rf"{store} +{prefix}:a +{who} +{when}", first), first
    assert second.split()[1] == f"{prefix}:b"
    # The columns stand below each other.
    assert first.index("pid") == second.index("pid")
    assert (ran.err, ran.failed) == ("", "")


def test_every_alias_is_listed(store: str, prefix: str) -> None:
    with lock(prefix, using=store), lock(prefix, using="locmem"):
        everywhere = {alias: [prefix] for alias in (*sharing(store), "locmem")}
        assert listed("--prefix", prefix) == everywhere
        assert listed("--prefix", prefix, "--all") == everywhere
        some = listed("--prefix", prefix, "--using", "locmem", "--using", store)
        assert some == {"locmem": [prefix], store: [prefix]}


def test_nothing_is_held(prefix: str) -> None:
    assert Ran("locks", "list", prefix=prefix).out == "No lock is held.\n"


def test_the_list_as_json(store: str, prefix: str) -> None:
    begun = datetime.now(UTC) - timedelta(seconds=2)
    with lock(f"{prefix}:\n", using=store, ttl=90, metadata={"user": "\u202e"}) as lease:
        ran = Ran("locks", "list", "--using", store, "--prefix", prefix, "--format", "json")
    [told] = json.loads(ran.out)
    assert (told["alias"], told["error"], told["shows_holders"]) == (store, None, True)
    [info] = told["locks"]
    assert begun < datetime.fromisoformat(info.pop("acquired_at")) < begun + timedelta(minutes=1)
    until = datetime.fromisoformat(info.pop("expires_at"))
    assert begun + timedelta(seconds=60) < until < begun + timedelta(minutes=2)
    assert info.pop("holder")["pid"] == os.getpid()
    assert info.pop("waiters") in (0, None)
    assert info.pop("waiting") == []
    assert info.pop("held_until") is None
    assert [info.pop(each) for each in ("shared", "limit", "slot")] == [False, None, None]
    assert info == {
        "alias": store,
        "name": f"{prefix}:\n",
        "fencing_token": lease.fencing_token,
        "metadata": {"user": "\u202e"},
    }
    assert ran.out.isascii()


def test_hostile_names_do_not_reach_the_terminal(store: str, prefix: str) -> None:
    name = prefix + HOSTILE
    with lock(name, using=store, metadata={"x": "\x1b[2J"}):
        for action in (["list", "--prefix", prefix], ["show", name]):
            ran = Ran("locks", *action, "--using", store)
            assert "\\x1b[2J" in ran.out
            assert all(character.isprintable() for character in ran.out.replace("\n", ""))
        assert max(map(len, Ran("locks", "list", "--prefix", prefix).out.splitlines())) < 250


def test_a_store_that_is_down_hides_no_other(store: str, prefix: str) -> None:
    with (
        database_alias("down", unreachable(store)),
        lock_alias("down", LOCATION="down"),
        lock_alias("wrong", RETENTION=5),
        lock(prefix, using=store),
    ):
        ran = Ran("locks", "list", "--prefix", prefix)
        assert f"\n{store}  " in ran.out
        assert "down: Lock store error while listing locks: OperationalError: " in ran.err
        assert "wrong: DISTLOCKS['wrong']['RETENTION']" in ran.err
        assert ran.failed == "Not read: wrong, down. See the errors above."
        assert ran.code == 1
        told = json.loads(Ran("locks", "list", "--format", "json", "--prefix", prefix).out)
        errors = {each["alias"]: each["error"] for each in told if each["error"]}
        assert sorted(errors) == ["down", "wrong"]
        assert Ran("locks", "list", "--using", store).failed == ""


@pytest.mark.parametrize("server", SERVERS)
def test_a_store_that_hangs_hides_no_other(server: str, prefix: str) -> None:
    STARTED[server].pause()
    try:
        with hold_elsewhere(prefix, using="locmem"):
            ran = Ran(
                "locks", "list", "--prefix", prefix, "--limit", "0.5", using=["locmem", server]
            )
    finally:
        STARTED[server].resume()
    assert "\nlocmem  " in ran.out
    assert ran.err == f"{server}: The store did not answer within 0.5 s\n"
    assert ran.failed == f"Not read: {server}. See the errors above."


def test_in_the_transaction_of_a_test_its_locks_are_seen(store: str, prefix: str) -> None:
    with transaction.atomic(using=store), lock(prefix, using=store):
        assert listed("--using", store, "--prefix", prefix) == {store: [prefix]}


def test_an_alias_that_is_not_there() -> None:
    ran = Ran("locks", "list", "--using", "nowhere")
    assert ran.failed.startswith("DISTLOCKS has no alias 'nowhere'. It has: 'default', ")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (0.9, "0s"), (59.9, "59s"), (65, "1m05s"), (3600, "1h00m"), (180_000, "2d02h")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


# -- watch ---------------------------------------------------------------------------------------


def test_watch_lists_again_and_again(store: str, prefix: str) -> None:
    with lock(prefix, using=store):
        arguments = ("locks", "watch", "--using", store, "--interval", "0", "--count", "2")
        ran = Ran(*arguments, "--prefix", prefix)
        assert (
            len(re.findall(rf"^\d\d:\d\d:\d\d\nALIAS .*\n{store} +{prefix} ", ran.out, re.M)) == 2
        )
        assert "\x1b" not in ran.out
        lines = Ran(*arguments, "--prefix", prefix, "--format", "json").out.splitlines()
        assert [json.loads(each)[0]["locks"][0]["name"] for each in lines] == [prefix, prefix]


def test_watch_ends_by_ctrl_c(store: str, prefix: str) -> None:
    with lock(prefix, using=store):
        arguments = ("watch", "--using", store, "--prefix", prefix, "--format", "json")
        with started("locks", *arguments) as watching:
            assert prefix in line(watching)
            watching.send_signal(signal.SIGINT)
            code, _, err = end(watching)
    assert (code, err) == (0, "")


# -- show ----------------------------------------------------------------------------------------


def test_show(store: str, name: str) -> None:
    with lock(name, using=store, ttl=90, metadata={"user": "ada"}) as lease:
        ran = Ran("locks", "show", name, "--using", store)
        found = Ran("locks", "show", name)
    facts = dict(re.split(r"  +", row, maxsplit=1) for row in ran.out.splitlines())
    assert facts["alias"] == store
    assert facts["pid"] == str(os.getpid())
    assert facts["thread"] == "MainThread"
    assert __file__ in facts["call site"]
    assert facts["token"] == str(lease.fencing_token)
    assert facts["metadata"] == '{"user": "ada"}'
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, \d+s ago", facts["since"])
    assert re.fullmatch(r".* UTC, in 1m\d\ds", facts["until"])
    assert found.out.splitlines()[0].split() == ["alias", store]


def test_what_min_hold_keeps_is_shown(store: str, name: str) -> None:
    lease = lock(name, using=store, min_hold=90).acquire(wait=0)
    assert lease is not None
    lease.release()
    try:
        facts = Ran("locks", "show", name, "--using", store).out
        listing = Ran("locks", "list", "--using", store, "--prefix", name).out
        told = json.loads(Ran("locks", "show", name, "--using", store, "--format", "json").out)
    finally:
        locks[store].force_release(name)
    assert re.search(r"^min_hold +.* UTC, in 1m\d\ds$", facts, re.MULTILINE)
    assert re.search(r" 1m\d\ds \(min_hold\) ", listing)
    assert told[0]["held_until"] > told[0]["acquired_at"]


def test_the_holders_of_a_lock_that_several_hold(store: str, name: str) -> None:
    limited = lock(name, using=store, limit=3, wait=0)
    leases: list[Lease] = [elsewhere(limited.__enter__) for _ in range(2)]
    listing = Ran("locks", "list", "--using", store, "--prefix", name).out
    facts = Ran("locks", "show", name, "--using", store).out
    told = json.loads(Ran("locks", "show", name, "--using", store, "--format", "json").out)
    ambiguous = Ran("locks", "release", name, "--using", store, "--yes").failed
    token = str(leases[1].fencing_token)
    freed = Ran("locks", "release", name, "--using", store, "--yes", "--token", token)
    left = limited.holders()
    last = str(leases[0].fencing_token)
    Ran("locks", "release", name, "--using", store, "--yes", "--token", last)
    assert [f" (slot {slot}, limit 3)" in listing for slot in range(3)] == [True, True, False]
    held = re.findall(r"^held +(.*)$", facts, re.MULTILINE)
    assert held == ["slot 0, limit 3", "slot 1, limit 3"]
    assert [(info["slot"], info["limit"], info["shared"]) for info in told] == [
        (0, 3, False),
        (1, 3, False),
    ]
    assert "has 2 holders. Say which by --token" in ambiguous
    assert freed.code == 0
    assert [info.slot for info in left] == [0]
    assert limited.holders() == []


def test_who_shares_a_lock_is_listed(name: str) -> None:
    with lock(name, using="locmem", shared=True):
        listing = Ran("locks", "list", "--using", "locmem", "--prefix", name).out
    assert " (shared) " in listing


def test_show_the_view_and_its_user(store: str, name: str) -> None:
    note = Holder("web-1", 7, "MainThread", "", "shop/views.py:3 pay", "shop:pay", "<ada>\x1b")
    backend = locks[store]
    claim = Claim(name, backend.key(name), os.urandom(8).hex(), 30.0, HolderInfo(note).dumps())
    assert isinstance(backend.try_acquire(claim, 5.0), Grant)
    try:
        ran = Ran("locks", "show", name, "--using", store)
        listing = Ran("locks", "list", "--using", store, "--prefix", name)
        told = json.loads(Ran("locks", "show", name, "--using", store, "--format", "json").out)
    finally:
        backend.release(claim)
    facts = dict(re.split(r"  +", row, maxsplit=1) for row in ran.out.splitlines())
    assert (facts["view"], facts["user"]) == ("shop:pay", "<ada>\\x1b")
    assert facts["call site"] == "shop/views.py:3 pay"
    assert "web-1 pid 7, shop:pay, user <ada>\\x1b" in listing.out
    assert (told[0]["holder"]["view"], told[0]["holder"]["user"]) == ("shop:pay", "<ada>\x1b")


def test_show_as_json(store: str, name: str) -> None:
    with lock(name, using=store):
        [told] = json.loads(Ran("locks", "show", name, "--format", "json").out)
    assert (told["alias"], told["name"]) == (store, name)


def test_nobody_holds_it(store: str, name: str) -> None:
    for action in (["show"], ["release", "--yes"]):
        ran = Ran("locks", *action, name, "--using", store)
        assert ran.failed.startswith("Not held: '")
        assert ran.code == 1


def test_not_to_know_is_not_the_same(store: str, name: str) -> None:
    with database_alias("down", unreachable(store)), lock_alias("down", LOCATION="down"):
        for action in (["show"], ["release", "--yes"]):
            ran = Ran("locks", *action, name)
            assert ran.failed == "Not read: down. See the errors above."
            assert "down: Lock store error while inspecting" in ran.err


@pytest.mark.parametrize("server", SERVERS)
def test_a_store_that_hangs_keeps_nobody(server: str, name: str) -> None:
    with hold_elsewhere(name, using="locmem"):
        STARTED[server].pause()
        try:
            both = {"using": ["locmem", server]}
            seen = Ran("locks", "show", name, "--limit", "0.5", **both)
            freed = Ran("locks", "release", name, "--yes", "--limit", "0.5", **both)
        finally:
            STARTED[server].resume()
        for ran in (seen, freed):
            assert f"name       {name}\n" in ran.out
            assert ran.err == f"{server}: The store did not answer within 0.5 s\n"
            assert ran.failed == f"Not read: {server}. See the errors above."
        assert not lock(name, using="locmem").locked()


def test_a_reader_that_has_seen_enough() -> None:
    """As `locks watch | head -1`: it ends, without an error on the operator's screen."""
    with started("locks", "watch", "--using", "locmem", "--interval", "0.05") as process:
        assert line(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(LIMIT) == 128 + signal.SIGPIPE


def test_the_help_names_every_option() -> None:
    assert all(action in run("locks", "--help").stdout for action in ("list", "watch", "release"))
    said = run("locks", "list", "--help").stdout
    assert all(option in said for option in ("--using", "--all", "--prefix", "--limit", "--format"))
    wrong = run("locks", "lits")
    assert wrong.returncode != 0
    assert "ACTION" in wrong.stderr


# -- ping, and no action ------------------------------------------------------------------------


def test_without_an_action_it_lists(name: str) -> None:
    with lock(name[-20:], using="locmem"):
        assert name[-20:] in Ran("locks").out


def test_options_before_the_action_are_those_of_the_list(store: str, prefix: str) -> None:
    with lock(f"{prefix}:here", using=store), lock(f"{prefix}:there", using="locmem"):
        for words in (
            ["--using", store, "--prefix", prefix],
            ["--using", store, "list", "--prefix", prefix],
            ["--prefix", prefix, "list", "--using", store],
        ):
            [told] = json.loads(Ran("locks", "--format", "json", *words).out)
            assert told["alias"] == store, words
            assert [each["name"] for each in told["locks"]] == [f"{prefix}:here"], words
        again = Ran("locks", "--using", store, "list", "--using", "locmem", "--prefix", prefix)
        assert f"{prefix}:here" not in again.out
        assert f"{prefix}:there" in again.out
        assert f"{prefix}:here" in Ran("locks", "--using", store, "show", f"{prefix}:here").out


def test_a_prefix_is_refused_where_it_would_do_nothing(name: str) -> None:
    ran = Ran("locks", "--prefix", "x", "show", name)
    assert ran.code == 1
    assert "--prefix is for list and watch, not for show" in ran.failed


def test_ping(store: str) -> None:
    ran = Ran("locks", "ping", "--using", store, "--using", "locmem")
    assert ran.code == 0
    said = [line.partition(":") for line in ran.out.splitlines()]
    assert sorted(alias for alias, _, _ in said) == sorted([store, "locmem"])
    assert all(re.fullmatch(r" \d+\.\d ms", took) for _, _, took in said)
    [told] = json.loads(Ran("locks", "ping", "--using", store, "--format", "json").out)
    assert (told["alias"], told["error"]) == (store, None)
    assert 0 < told["seconds"] < LIMIT


def test_ping_of_a_store_that_is_down() -> None:
    with database_alias("gone", unreachable("sqlite")), lock_alias("is gone", LOCATION="gone"):
        ran = Ran("locks", "ping", "--using", "is gone", "--using", "locmem")
        assert (ran.code, ran.failed) == (1, "No answer: is gone.")
        assert ran.out.startswith("locmem: ")
        assert ran.err.startswith("is gone: ")
