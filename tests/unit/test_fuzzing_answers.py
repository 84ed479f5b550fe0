"""What a store answers, as anybody may have written it: a proxy, another program, a later release.

Each primitive is given answers that were made well, in any order, of which some are damaged: it
ends, by what it is to return or by an error of the store's, and never by one of Python's. As in
`test_fuzzing`, ``DISTLOCK_FUZZ_EXAMPLES`` says how many are tried.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from django_distlock import LockBackendError
from django_distlock.backends.base import BaseLockBackend
from django_distlock.backends.consul import ConsulBackend
from django_distlock.backends.consul.records import ConsulRecord, Paths
from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.etcd.protocol import EtcdKeys, EtcdRecord, base64
from django_distlock.backends.redis import RedisBackend
from django_distlock.backends.redis.client import NodeClient
from django_distlock.backends.redis.commands import Begin, carried_out
from django_distlock.backends.redis.records import held_record
from django_distlock.conf import AliasConf
from django_distlock.core import flow
from django_distlock.core.names import key_of
from django_distlock.core.values import Claim, HolderInfo
from django_distlock.http import Answer, Http, HttpError, Request
from tests.unit.test_fuzzing import EXAMPLES, NOTE

KEY = key_of("", "n")
ALONE = Claim("n", KEY, "a" * 32, 20.0, NOTE)
CLAIMS = (ALONE, ALONE._replace(limit=3), ALONE._replace(shared=True))
OTHER = ALONE._replace(owner="b" * 32)
TWO = [ALONE, ALONE._replace(name="m", key=key_of("", "m"), owner="c" * 32)]
OPTIONS = {"COMMAND_TIMEOUT": 0.05}  # no time for a second try, which would only take it
LAST = 12
"""Answers after which the store fails, so that an endless loop is found."""

Say: TypeAlias = Callable[[], Any]

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    10**30,
    1e999,
    "",
    "x",
    "7",
    "9" * 5000,
    "é\udcff",
    [],
    {},
    [[]],
)
VERBS: Sequence[Callable[[BaseLockBackend, Claim], object]] = (
    lambda backend, claim: backend.call("try_acquire", claim, 0.0),
    lambda backend, claim: backend.call("try_acquire", claim, 0.02),
    lambda backend, claim: backend.call("queue", claim, 0.02, 0.02),
    lambda backend, claim: backend.call("renew", claim),
    lambda backend, claim: backend.call("renew_many", CLAIMS),
    lambda backend, claim: backend.call("release", claim),
    lambda backend, claim: backend.at_once > 1 and backend.call("try_acquire_many", TWO, 0.02),
    lambda backend, claim: backend.at_once > 1 and backend.call("release_many", TWO),
    lambda backend, claim: backend.call("inspect", claim.name),
    lambda backend, claim: backend.call("holders", claim.name),
    lambda backend, claim: list(backend.held()),
    lambda backend, claim: backend.cleans and backend.clean(older_than=60),
)


def spoilt(data: st.DataObject, value: Any, junk: st.SearchStrategy[Any]) -> Any:
    """Return a value of which one part is another one, or is not there."""
    if not isinstance(value, dict | list) or not value or not data.draw(st.integers(0, 7)):
        return data.draw(junk)
    copy: Any = value.copy()
    key = data.draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    if data.draw(st.integers(0, 3)):
        copy[key] = spoilt(data, copy[key], junk)
    else:
        del copy[key]
    return copy


# -- by HTTP ---------------------------------------------------------------------------------------


class SaidByHttp(Http):
    """A server that answers whatever it is asked with what ``say`` returns: a status and JSON."""

    def __init__(self, say: Say) -> None:
        super().__init__([])
        self._say = say

    def ask(self, request: Request, limit: float) -> Answer:
        status, *lines = self._say()
        body = b"\n".join(
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines
        )
        return Answer(status, {"x-consul-index": "7"}, body)

    def open(self, request: Request, limit: float) -> Any:
        return SaidInLines(self._say)


class SaidInLines:
    """The same as a stream."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def line(self, limit: float) -> bytes:
        line = self._say()[1]
        return line if isinstance(line, bytes) else json.dumps(line).encode()

    def close(self) -> None:
        pass


OF_NONE = [(200, b"<html>"), (200, b"[" * 100_000), (502, b"<html>"), (400, b"")]
HEADER = {"cluster_id": "1", "member_id": "2", "revision": "12", "raft_term": "2"}


def _key(claim: Claim, revision: int, slot: int | None = None) -> dict[str, str]:
    own, value = EtcdKeys.of("distlock/1//", claim).own, EtcdRecord.of(claim, slot).dumps()
    words = {"create_revision": str(revision), "mod_revision": str(revision + 1), "lease": "7"}
    return {"key": own, "value": base64(value), **words}


def _range(*keys: dict[str, str]) -> dict[str, Any]:
    return {"response_range": {"header": HEADER, "kvs": [*keys], "count": str(len(keys))}}


def _txn(*parts: Any, succeeded: bool = True) -> tuple[int, Any]:
    return 200, {"header": HEADER, "succeeded": succeeded, "responses": [*parts]}


PUT: dict[str, Any] = {"response_put": {"header": HEADER}}
TXN: dict[str, Any] = {"response_txn": {"succeeded": True, "responses": [PUT]}}
DELETED = {"response_delete_range": {"header": HEADER, "deleted": "1"}}
KEYS = [
    [_key(claim, 11, 0 if claim.limit else None), _key(OTHER._replace(limit=claim.limit), 9, 1)]
    for claim in CLAIMS
]
OF_ETCD = [
    *OF_NONE,
    (200, {"token": "t"}),
    (200, {"header": HEADER, "ID": "7", "TTL": "26"}),
    (200, {"result": {"header": HEADER, "ID": "7", "TTL": "26"}}),
    (200, {"result": {"created": True}}),
    (200, {"result": {"events": [{"type": "DELETE"}]}}),
    (400, {"error": "etcdserver: requested lease not found", "code": 5}),
    (503, {"error": "etcdserver: no leader", "code": 14}),
    _txn(PUT),
    _txn(DELETED),
    _txn(succeeded=False),
    _txn(TXN, TXN),
    _txn(TXN, {"response_txn": {"responses": [_range(), _range(*KEYS[0][1:])]}}),
    *(_txn(PUT, _range(*keys)) for keys in KEYS),
    *(_txn(_range(mine), _range(other)) for mine, other in KEYS),
    *(_txn(_range(mine), _range(other), _range(other)) for mine, other in KEYS),
    *(_txn(_range(), _range(other), succeeded=False) for _, other in KEYS),
    *(_txn(_range(other), DELETED) for _, other in KEYS),
    *((200, {"header": HEADER, "kvs": keys, "more": True}) for keys in KEYS),
]


def _etcd(say: Say, **options: Any) -> BaseLockBackend:
    conf = AliasConf("etcd", location="http://127.0.0.1:1", options=OPTIONS | options)
    backend = EtcdBackend("fuzz", conf)
    backend._client.http = SaidByHttp(say)
    return backend


SESSION = "09ed6b12-c6b7-bd6e-0bc1-29951478fac7"


def _pair(key: str, value: bytes) -> dict[str, Any]:
    numbers = {"LockIndex": 1, "CreateIndex": 9, "ModifyIndex": 10}
    return {"Key": key, "Value": b64encode(value).decode(), "Session": SESSION, **numbers}


FOLDER = "distlock/1/e3b0c44298fc1c14/"
PATHS = Paths(FOLDER, KEY)
RECORDS = [
    ConsulRecord(claim.owner, 1, 20.0, 1, 2, 9, "n", NOTE, 0).dumps() for claim in (ALONE, OTHER)
]
PAIRS = [
    *(_pair(PATHS.lock, record) for record in RECORDS),
    _pair(PATHS.share(ALONE.owner), RECORDS[0]),
    _pair(PATHS.guard, f"3 {ALONE.owner} 1700000000000".encode()),
    _pair(PATHS.mark, b"x 1700000000000"),
    _pair(f"{PATHS.queue}{OTHER.owner}-1", RECORDS[1]),
]
OF_CONSUL = [
    *OF_NONE,
    (200, {"ID": SESSION}),
    (200, [{"ID": SESSION, "Name": "n"}]),
    (200, True),
    (404, None),
    (429, "rate limit"),
    (500, "No cluster leader"),
    (200, PAIRS),
    *((200, [pair]) for pair in PAIRS),
    (200, {"Results": [], "Errors": None}),
    (200, {"Results": [{"KV": pair} for pair in PAIRS], "Errors": None}),
    *((200, {"Results": [{"KV": pair}], "Errors": None}) for pair in PAIRS),
    (409, {"Results": None, "Errors": [{"OpIndex": 0, "What": f"{PATHS.lock} exists"}]}),
    (409, {"Results": None, "Errors": [{"OpIndex": 0, "What": "invalid session"}]}),
    (409, {"Results": None, "Errors": [{"OpIndex": 5, "What": f"{PATHS.mark} exists"}]}),
    (200, {"Results": [{"KV": {**PAIRS[0], "Key": Paths(FOLDER, each.key).lock}} for each in TWO]}),
]


def _consul(say: Say) -> BaseLockBackend:
    backend = ConsulBackend("fuzz", AliasConf("consul", options=OPTIONS))
    backend._http = SaidByHttp(say)
    return backend


# -- Redis -----------------------------------------------------------------------------------------


class SaidByRedis(NodeClient):
    """A server that answers each command with what ``say`` returns."""

    say: Say

    def ask(self, command: Any, limit: float, *, resend: bool = True) -> Any:
        (answer,) = self.ask_all([command], limit)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_all(self, commands: Sequence[Any], limit: float, *, resend: bool = True) -> list[Any]:
        answers = [self.say() for _ in commands]
        # A new one each: what is raised keeps all that it came through.
        return [each("WRONGTYPE") if each is ResponseError else each for each in answers]

    def converse(self, begin: Begin[Any], limit: float, *, resend: bool = True) -> Any:
        return flow.run(carried_out(begin(), self.ask_all, limit))


HELD = held_record(7, 9, ALONE.owner, f"n\n{HolderInfo().dumps()}").encode()
OF_REDIS = [
    1,
    0,
    1_700_000_000_000_000,
    [1_700_000_000_000_000, 2],
    [19_000, NOTE.encode(), 1],
    [19_000, NOTE.encode(), 1, 3],
    [0, b"", 0],
    [1, 1, 0],
    [b"1700000000", b"17"],
    [b"0", [bytes.fromhex(KEY)]],
    HELD,
    ResponseError,
]
REDIS_JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    7,
    10**30,
    1e999,
    b"",
    b"OK",
    "OK",
    b"9" * 5000,
    [],
    [[]],
    [b"x"],
    {},
)


def _redis(say: Say, **options: Any) -> BaseLockBackend:
    conf = AliasConf("redis", location="redis://127.0.0.1:1/0", options=OPTIONS | options)
    backend = RedisBackend("fuzz", conf)
    client = SaidByRedis(backend.located, 0.05, 1)
    client.say = say
    backend._clients = client
    if backend._direct is not None:
        backend._direct = backend._direct[0], client, backend._direct[2]
    return backend


# -- all -------------------------------------------------------------------------------------------

Store: TypeAlias = (
    "tuple[Callable[[Say], BaseLockBackend], list[Any], tuple[Any, ...], type[Exception]]"
)
STORES: dict[str, Store] = {
    "etcd": (_etcd, OF_ETCD, JUNK, HttpError),
    "etcd-login": (
        lambda say: _etcd(say, USER="u", PASSWORD="p"),
        OF_ETCD,
        JUNK,
        HttpError,
    ),
    "consul": (_consul, OF_CONSUL, JUNK, HttpError),
    "redis": (_redis, OF_REDIS, REDIS_JUNK, ResponseError),
    "redis-unscripted": (
        lambda say: _redis(say, SCRIPTING=False),
        OF_REDIS,
        REDIS_JUNK,
        ResponseError,
    ),
}


@pytest.mark.parametrize("store", STORES)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_answer(store: str, data: st.DataObject) -> None:
    opened, made, junk, end = STORES[store]
    said = 0

    def say() -> Any:
        nonlocal said
        said += 1
        if said > LAST:
            raise end("it says no more")
        answer = data.draw(st.sampled_from(made))
        if data.draw(st.integers(0, 3)):
            return answer
        if isinstance(answer, tuple):
            return answer[0], spoilt(data, answer[1], st.sampled_from(junk))
        return spoilt(data, answer, st.sampled_from(junk))

    backend = opened(say)
    claim = data.draw(st.sampled_from(CLAIMS))
    for verb in data.draw(st.lists(st.sampled_from(VERBS), min_size=1, max_size=4)):
        with suppress(LockBackendError):
            verb(backend, claim)
