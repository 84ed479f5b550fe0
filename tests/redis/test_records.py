"""What stands in Redis: the keys, their hash tags, the records, and what is left of them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hiredis import pack_command
from hypothesis import given
from hypothesis import strategies as st

from django_distlock import LockBackendError, lock
from django_distlock.backends.redis.records import (
    TAGS,
    RedisRecord,
    held_record,
    keys_of,
    long_owner,
    read,
    several_record,
    short_owner,
    words_of,
)
from django_distlock.backends.redis.scripts import Scripted
from django_distlock.core.members import Member, Members
from django_distlock.core.names import key_of, readable, unreadable
from django_distlock.core.values import Claim, Holder, HolderInfo
from tests.claims import claim, granted, soon
from tests.redis.tools import Opener, calls, keys
from tests.servers import Redis

HOUR = 3600.0


def test_the_keys_of_a_name_share_a_tag_and_all_tags_are_used() -> None:
    tags = set()
    for number in range(2000):
        key = key_of("", str(number))
        found = keys_of("base", key)
        tag = found.index[: -len("i")]
        assert found.record.startswith(tag)
        assert found.queue.startswith(tag)
        assert found.base == tag
        tags.add(tag)
    assert len(tags) == TAGS
    assert all(tag.startswith(b"base:{") and tag.endswith(b"}:") for tag in tags)


@given(st.binary() | st.text().map(str.encode))
def test_what_is_no_record_of_ours_is_read_as_none(raw: bytes) -> None:
    found = read(raw)
    assert found is None or found == RedisRecord(int(raw))


@given(st.binary(min_size=16, max_size=16).map(bytes.hex) | st.text())
def test_an_owner_is_read_as_it_was_written(owner: str) -> None:
    assert long_owner(short_owner(owner).decode("utf-8", "surrogatepass")) == owner


@given(
    st.lists(st.binary(min_size=16, max_size=16).map(bytes.hex) | st.text(), unique=True),
    st.integers(0, 1000),
    st.text(min_size=1),
)
def test_the_holders_are_read_as_they_were_written(
    owners: list[str], limit: int, name: str
) -> None:
    notes = [HolderInfo(Holder("web", 7)).dumps() for _ in owners]
    held = Members(
        limit,
        0,
        tuple(Member(owner, 5, 6, 7, 0, note) for owner, note in zip(owners, notes, strict=True)),
    )
    text = several_record(1_700_000_000_000_000, 604_800_000, name, held)
    assert text.isascii()
    found = read(text.encode())
    assert found is not None
    assert (found.token, found.retention, found.owner) == (1_700_000_000_000_000, 604_800_000, "")
    assert (unreadable(found.name), found.members) == (name, held)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_owners_of_one_length_that_differ_are_written_differently(one: bytes, other: bytes) -> None:
    ours = {one.hex(), other.hex(), one.hex().upper(), other.hex().upper()}
    assert len({short_owner(each) for each in ours}) == len(ours)
    assert len(short_owner(one.hex())) == 22


@given(st.integers(0, 10**15), st.integers(60, 10 * 365 * 86400), st.text(min_size=1))
def test_a_record_is_read_as_it_was_written(token: int, retention: int, name: str) -> None:
    note = HolderInfo(Holder("host", 1, "MainThread", "", "shop/views.py:7 pay")).dumps()
    owner = "0123456789abcdef" * 2
    raw = held_record(token, retention * 1000, owner, words_of(name, note)).encode()
    expected = RedisRecord(token, retention * 1000, owner, readable(name), note)
    assert read(raw) == expected
    assert read(b"+" + raw[1:]) == replace(expected, queued=True)


@given(
    st.text(min_size=1),
    st.text(st.characters(codec="ascii")),
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.floats(0.001, 1e8),
    st.booleans(),
)
def test_what_is_packed_here_is_what_the_driver_packs(
    name: str, note: str, owner: str, ttl: float, join: bool
) -> None:
    way = Scripted("base", 600, one_server=True)
    mine = Claim(name, key_of("", name), owner, ttl, note)
    home = b"mailbox" if join else b""
    keys, args = way._to_acquire(mine, home)
    command = ("EVALSHA", way._acquire.sha, len(keys), *keys, *args)
    assert way.acquire_at_once(mine, home) == pack_command(command)
    keys, args = way._to_release(mine)
    command = ("EVALSHA", way._release.sha, len(keys), *keys, *args)
    assert way.release_at_once(mine) == pack_command(command)


def test_a_clock_that_was_never_set(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    mine = claim(backend, name)
    record = keys_of("distlock:1", mine.key).record.decode()
    # A token of few digits, as such a clock gives, is no reason to go below the clock of now.
    server.execute("SET", record, "7")
    assert granted(backend, mine) > 10**15
    assert len(server.execute("GET", record).split("\n")[0]) == 1 + 16 + 9 + 22
    assert backend.release(mine)


def test_a_free_name_keeps_its_token_for_the_retention(server: Redis, opened: Opener) -> None:
    server.execute("FLUSHALL")
    backend = opened(server.url(), retention=600)
    mine = claim(backend, "x")
    token = granted(backend, mine)
    record = keys_of("distlock:1", mine.key).record.decode()
    assert int(server.execute("PTTL", record)) > 600_000
    assert backend.release(mine)
    assert keys(server) == [record]
    assert server.execute("GET", record) == str(token)
    assert 590_000 < int(server.execute("PTTL", record)) <= 600_000


def test_nothing_is_left_of_waiters(server: Redis, opened: Opener) -> None:
    server.execute("FLUSHALL")
    backend = opened(server.url())
    mine = claim(backend, "x")
    granted(backend, mine)
    waiters = [claim(backend, "x") for _ in range(3)]
    for waiter in waiters:
        backend.try_acquire(waiter, 20.0)
    assert len(keys(server)) == 7  # the record, the index, the queue, who waits, and the process
    for waiter in waiters:
        backend.withdraw(waiter)
    soon(lambda: len(keys(server)) == 2)  # the process's key ends by itself
    assert backend.release(mine)
    assert keys(server) == [keys_of("distlock:1", mine.key).record.decode()]


@pytest.mark.parametrize("scripting", [True, False])
def test_a_queue_is_asked_for_only_where_one_may_be(
    server: Redis, opened: Opener, *, scripting: bool
) -> None:
    server.execute("FLUSHALL")
    backend = opened(server.url(), SCRIPTING=scripting)
    mine = [claim(backend, f"n{number}", ttl=HOUR) for number in range(30)]
    for each in mine:
        granted(backend, each)
    for number in (3, 3, 7):
        backend.try_acquire(claim(backend, f"n{number}"), 20.0)
    before = calls(server)
    waiters = {info.name: info.waiters for info in backend.held()}
    asked = {name: count - before.get(name, 0) for name, count in calls(server).items()}
    assert (asked["get"], asked["pttl"]) == (30, 30)
    assert asked.get("llen", 0) == (2 if scripting else 0)
    counts = {"n3": 2, "n7": 1}
    assert waiters == {each.name: counts.get(each.name, 0) if scripting else None for each in mine}


def test_dead_waiters_leave_nothing(server: Redis, opened: Opener) -> None:
    server.execute("FLUSHALL")
    backend = opened(server.url())
    mine = claim(backend, "x", ttl=HOUR)
    granted(backend, mine)
    for _ in range(3):
        backend.try_acquire(claim(backend, "x"), 20.0)
    queue = keys_of("distlock:1", mine.key).queue.decode()
    assert 0 < int(server.execute("PTTL", queue)) <= 20_000
    for key in keys(server):
        if ":m:" in key:
            server.execute("DEL", key)  # as if the process had died
    assert backend.release(mine)
    assert len(keys(server)) == 1


def test_tokens_rise_when_everything_is_lost(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    tokens = []
    for lose in (("FLUSHALL",), ("SCRIPT", "FLUSH"), ("FLUSHDB",), ("DEL", "")):
        mine = claim(backend, name)
        tokens.append(granted(backend, mine))
        backend.release(mine)
        words = ("DEL", keys_of("distlock:1", mine.key).record.decode()) if "DEL" in lose else lose
        server.execute(*words)
    last = claim(backend, name)
    tokens.append(granted(backend, last))
    assert backend.release(last)
    assert tokens == sorted(set(tokens))


def test_tokens_rise_when_the_servers_clock_was_ahead(
    server: Redis, opened: Opener, name: str
) -> None:
    for options in ({}, {"SCRIPTING": False}):
        backend = opened(server.url(), prefix=str(options), **options)
        mine = claim(backend, name)
        future = int((time.time() + HOUR) * 1_000_000)
        record = keys_of("distlock:1", mine.key).record.decode()
        server.execute("SET", record, str(future))
        assert granted(backend, mine) == future + 1
        assert backend.release(mine)
        assert server.execute("GET", record) == str(future + 1)


def test_a_holder_learns_of_a_flush(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    mine, theirs = claim(backend, name), claim(backend, name)
    before = granted(backend, mine)
    server.execute("FLUSHALL")
    assert granted(backend, theirs) > before
    assert not backend.renew(mine)
    assert not backend.release(mine)
    assert backend.renew(theirs)
    assert backend.release(theirs)


def test_held_asks_for_no_keys_but_ours(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    server.execute("DEBUG", "POPULATE", "20000", "unrelated")
    try:
        claims = [claim(backend, f"{name}{number}") for number in range(200)]
        for each in claims:
            granted(backend, each)
        before = calls(server)
        assert len(list(backend.held(name))) == 200
        after = calls(server)
        assert after.get("scan", 0) == before.get("scan", 0)
        assert after.get("keys", 0) == before.get("keys", 0)
        done = {each: after[each] - before.get(each, 0) for each in ("sscan", "get", "pttl")}
        assert done["sscan"] == TAGS
        assert 200 <= done["get"] == done["pttl"] < 400
        for each in claims:
            backend.release(each)
    finally:
        server.execute("FLUSHALL")


def test_an_index_that_is_longer_than_a_page(server: Redis, opened: Opener) -> None:
    server.execute("FLUSHALL")
    backend = opened(server.url())
    claims = [claim(backend, str(number), ttl=HOUR) for number in range(1500)]
    for each in claims:
        granted(backend, each)
    assert sorted(info.name for info in backend.held()) == sorted(each.name for each in claims)
    assert [info.name for info in backend.held("1499")] == ["1499"]
    assert all(backend.renew_many(claims))
    half = claims[::2]
    for each in half:
        backend.release(each)
    assert backend.renew_many(claims) == [each not in half for each in claims]
    server.execute("FLUSHALL")


def test_commands_for_an_acquisition(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url())
    with lock(name, using=backend.alias):
        pass
    before = int(server.info("total_commands_processed"))
    spent = int(server.info("total_commands_processed")) - before
    taken = 20
    inner = _inside(calls(server))
    before = int(server.info("total_commands_processed"))
    for _ in range(taken):
        with lock(name, using=backend.alias):
            pass
    outer = int(server.info("total_commands_processed")) - before - spent
    # What the scripts call is counted, too.
    assert outer - (_inside(calls(server)) - inner) == 2 * taken


def _inside(counted: dict[str, int]) -> int:
    named = ("get", "set", "pttl", "time", "sadd", "srem", "del", "lpop")
    return sum(counted.get(each, 0) for each in named)


@pytest.mark.parametrize("options", [{}, {"SCRIPTING": False}], ids=["scripts", "transactions"])
def test_a_key_of_another_program_is_in_the_way(
    server: Redis, opened: Opener, options: dict[str, bool]
) -> None:
    backend = opened(server.url(), prefix=str(options), **options)
    record = keys_of("distlock:1", backend.key("x")).record.decode()
    try:
        server.execute("LPUSH", record, "theirs")
        with pytest.raises(LockBackendError, match="used by another program"):
            lock("x", using=backend.alias).acquire(wait=0)
        assert server.execute("LRANGE", record, "0", "-1") == "theirs"
    finally:
        server.execute("DEL", record)
