"""What is read from a store, a message, an address or a program, as anybody may have written it.

Each parser is given what was made well and then damaged, and what was never made: it has to return,
or to raise what it says that it raises. ``DISTLOCK_FUZZ_EXAMPLES=100000`` tries so many of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_distlock import InvalidLockBackendError, InvalidLockError, Lease, LockError, lock
from django_distlock.backends.consul.records import ConsulRecord, KeyValue, Paths, state_of
from django_distlock.backends.etcd.protocol import EtcdRecord
from django_distlock.backends.redis.records import held_record, long_owner, read
from django_distlock.backends.redlock.rounds import Value
from django_distlock.backends.zookeeper.requests import contenders
from django_distlock.contrib.celery.spec import HEADER, Ticket
from django_distlock.core.durations import parse_age, parse_duration
from django_distlock.core.members import Members
from django_distlock.core.names import readable, unreadable
from django_distlock.core.values import Claim, Holder, HolderInfo
from django_distlock.decorators import fill
from django_distlock.http import Endpoint, HttpError, Request
from django_distlock.http.framing import Framing
from django_distlock.http.messages import parse_endpoint

EXAMPLES = int(os.environ.get("DISTLOCK_FUZZ_EXAMPLES", "30"))

NOTE = HolderInfo(Holder("web-1", 4711, "MainThread"), {"order": 7}, 30.0).dumps()
OWNER = "0123456789abcdef0123456789abcdef"
CLAIM = Claim("räum auf", "0" * 64, OWNER, 30.0, NOTE, limit=3)


def _members() -> str:
    joined = Members().joined(CLAIM, 1_700_000_000_000_000, 7)
    assert isinstance(joined, Members)
    return joined.dumps()


def _framed(data: bytes) -> None:
    framing = Framing(Endpoint("h", 80), ())
    framing.pack(Request("GET", "/"))
    for start in range(0, len(data), 7):
        framing.feed(data[start : start + 7])
        if framing.is_whole:
            framing.answer()
            break
    framing.feed(b"")


def _streamed(data: bytes) -> None:
    framing = Framing(Endpoint("h", 80), ())
    framing.pack(Request("GET", "/"))
    for start in range(0, len(data), 13):
        framing.lines(data[start : start + 13])


def _of_consul(data: bytes) -> None:
    ConsulRecord.loads(data)
    paths = Paths("distlock/1/x/", CLAIM.key)
    keys = (paths.lock, paths.mark, paths.guard, f"{paths.queue}a-1", paths.share("a"))
    state = state_of(paths, [KeyValue(key, data, "s", 1, 2, 3) for key in keys])
    assert state.of("another") is None
    assert len(state.waiters) <= 1


def _of_redis(data: bytes) -> None:
    record = read(data)
    assert record is None or record.token >= 0


def _ticket(text: str) -> None:
    for header in (text, _json(text), {"task_id": "7", "name": text, "owner": text, "waits": text}):
        Ticket.of({HEADER: header}, "7")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _name(text: str) -> None:
    assert unreadable(readable(text)) == text
    unreadable(text)


def _template(text: str) -> None:
    fill(text, {"order": 7, "user": {"pk": 1}, "when": None}, "locmem")


Raises: TypeAlias = "tuple[type[Exception], ...]"
TEXTS: Mapping[str, tuple[Callable[[str], object], tuple[str, ...], Raises]] = {
    "holder info": (HolderInfo.loads, (NOTE, "", "[]", '{"pid": 1e999}'), ()),
    "members": (
        Members.loads,
        (_members(), "[0,0,[]]", "[1e999,2,[]]", '[0,0,[["o",1,2,3,0,""]]]'),
        (),
    ),
    "name": (_name, (r"\x41\u0041\U00110000\n", "\udcff"), ()),
    "owner in Redis": (long_owner, ("AAAAAAAAAAAAAAAAAAAAAQ", "=x"), ()),
    "record of etcd": (
        EtcdRecord.loads,
        (EtcdRecord.of(CLAIM, 1).dumps(), "1 shared\nn\n", f"{'9' * 5000}\nn\n"),
        (),
    ),
    "ticket": (_ticket, ('{"task_id": "7", "name": "n", "owner": "o", "waits": 1}',), ()),
    "template": (
        _template,
        ("a:{order}", "{user[pk]:>9}", "{order!r}{", "{when}"),
        (InvalidLockError,),
    ),
    "age": (parse_age, ("7d", "12h", "0.5"), (InvalidLockError,)),
    "duration": (lambda text: parse_duration(text, what="x"), ("7d", "1e5"), (InvalidLockError,)),
    "address": (
        lambda text: parse_endpoint(text, 80),
        ("http://127.0.0.1:8500", "https://[::1]:1/"),
        (ValueError,),
    ),
    "node of ZooKeeper": (lambda text: contenders([text]), ("x00ff.s-0000000001", "a.3-1"), ()),
    "handle": (
        Lease.attach,
        ('[1,"locmem","n","o",30,1,"",true,null,0,0,null,null,false,0,null]', "[1]"),
        (LockError, InvalidLockBackendError),
    ),
}
BYTES: Mapping[str, tuple[Callable[[bytes], object], tuple[bytes, ...], Raises]] = {
    "record of Redis": (
        _of_redis,
        (held_record(7, 9, OWNER, "n\n{}").encode(), b"17", b"9" * 5000),
        (),
    ),
    "record of several": (_of_redis, (f"*{7:016}{9:09}n\n{_members()}".encode(),), ()),
    "value of Redlock": (Value.of, (f"{60000:013}{5:016}{7:016}{0:016}o\nn\n{{}}".encode(),), ()),
    "record of Consul": (
        _of_consul,
        (
            ConsulRecord(OWNER, 1, 30.0, 1, 2, 3, "n", NOTE, 0).dumps(),
            b"3 1700000000000",
            b'{"l":1e999}',
        ),
        (),
    ),
    "answer by HTTP": (
        _framed,
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 204 No\r\n\r\n"),
        (HttpError,),
    ),
    "stream by HTTP": (
        _streamed,
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n0\r\n\r\n",),
        (HttpError,),
    ),
}


def damaged(made: tuple[Any, ...], junk: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what was made, with a part of it replaced by something else; or only that."""

    def spoilt(text: Any, start: int, length: int, other: Any) -> Any:
        at = start % (len(text) + 1)
        return text[:at] + other + text[at + length :]

    return st.one_of(
        junk,
        st.builds(spoilt, st.sampled_from(made), st.integers(0, 500), st.integers(0, 9), junk),
        st.builds(lambda text, times: text * times, st.sampled_from(made), st.integers(2, 40)),
    )


@pytest.mark.parametrize("what", TEXTS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_text(what: str, data: st.DataObject) -> None:
    parser, made, raises = TEXTS[what]
    text = data.draw(damaged(made, st.text(st.characters(codec=None), max_size=30)))
    with suppress(*raises):
        parser(text)


@pytest.mark.parametrize("what", BYTES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes(what: str, data: st.DataObject) -> None:
    parser, made, raises = BYTES[what]
    text = data.draw(damaged(made, st.binary(max_size=30)))
    with suppress(*raises):
        parser(text)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_handle_touches_a_lock_that_it_does_not_name(data: st.DataObject) -> None:
    """Whatever the handle says: without the owner, which is a secret, nothing is renewed."""
    with lock("foreign", using="locmem", ttl=60) as lease:
        left = lease._hold.deadline
        handle = data.draw(
            damaged(
                ('[1,"locmem","foreign","o",30,1,"",true,null,0,0,null,null,false,0,null]',),
                st.text(max_size=20),
            )
        )
        with pytest.raises((LockError, InvalidLockBackendError)):
            Lease.attach(handle)
        lease.check()
        assert lease._hold.deadline >= left
