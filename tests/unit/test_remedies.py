"""What each store's errors say is to be done."""

from __future__ import annotations

import json

import pytest
from kazoo import exceptions as kazoo

from django_distlock.backends.consul import errors as consul
from django_distlock.backends.consul.api import ConsulError
from django_distlock.backends.etcd import errors as etcd
from django_distlock.backends.zookeeper import errors as zookeeper
from django_distlock.http import Answer, HttpError

WHERE = "https://store.example:1"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (kazoo.NoAuthError(), "belong to another user"),
        (kazoo.AuthFailedError(), "AUTH and SASL"),
        (kazoo.InvalidACLError(), "AUTH and SASL"),
        (kazoo.SessionExpiredError(), "a new one"),
        (kazoo.UnimplementedError(), "older than ZooKeeper 3.5"),
        (kazoo.ConnectionLoss(), "a majority"),
        (zookeeper.NoAnswerError(), "a majority"),
        (zookeeper.NoAnswerError("[SSL: WRONG_VERSION_NUMBER]"), "TLS in OPTIONS"),
        (kazoo.BadVersionError(), "log of the servers"),
    ],
)
def test_of_zookeeper(error: Exception, word: str) -> None:
    assert word in zookeeper.remedy(error, WHERE)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (etcd.EtcdError("no token", etcd.UNAUTHENTICATED), "USER and PASSWORD"),
        (etcd.EtcdError("permission denied", 7), "Grant the user"),
        (etcd.EtcdError("mvcc: database space exceeded", etcd.EXHAUSTED), "compact"),
        (etcd.EtcdError("grpc: received message larger than max", etcd.EXHAUSTED), "fewer at once"),
        (etcd.EtcdError("etcdserver: request is too large", 3), "fewer at once"),
        (etcd.EtcdError("too many operations in txn request", 3), "--max-txn-ops"),
        (etcd.EtcdError("members of different clusters"), "one cluster"),
        (etcd.EtcdError("status 404: not found"), "3.4 or newer"),
        (etcd.EtcdError("no leader", etcd.UNAVAILABLE), "endpoint status"),
        (etcd.EtcdError("authentication is not enabled"), "USER and PASSWORD"),
        (etcd.EtcdError("anything else"), "its log"),
        (HttpError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "CA_FILE"),
        (HttpError("it did not answer in 5 s"), "hangs or is cut off"),
        (HttpError("refused"), "its log"),
    ],
)
def test_of_etcd(error: Exception, word: str) -> None:
    assert word in etcd.remedy(error, WHERE)


@pytest.mark.parametrize(
    ("status", "body", "text", "code"),
    [
        (503, b"busy", "status 503: busy", etcd.UNAVAILABLE),
        (400, b"", "status 400: no text", 0),
        (400, b"[]", "status 400: []", 0),
        (400, json.dumps({"error": "no", "code": 7}).encode(), "no", 7),
        (200, b'{}\n{"error": {"message": "late", "grpc_code": 14}}', "late", 14),
    ],
)
def test_what_etcd_answers_as_an_error(status: int, body: bytes, text: str, code: int) -> None:
    error = etcd.error_of(Answer(status, {}, body))
    assert (str(error), error.code) == (text, code)
    assert not isinstance(error, etcd.NoSuchLeaseError)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (HttpError("refused"), "COMMAND_TIMEOUT"),
        (HttpError("reset", turned_away=True), "http_max_conns_per_client"),
        (HttpError("[SSL: WRONG_VERSION_NUMBER] wrong version number"), "CA_FILE"),
        (ValueError("of another kind"), "its log"),
        (ConsulError(403, "rejected"), "key_prefix write"),
        (ConsulError(500, "ACL not found"), "key_prefix write"),
        (ConsulError(500, "No cluster leader"), "list-peers"),
        (ConsulError(400, "Invalid Session TTL"), "SESSION_TTL_MIN"),
        (ConsulError(400, "Missing check 'x' registration"), "SERVICE_CHECKS"),
        (ConsulError(413, "Value is too large"), "fewer at once"),
        (ConsulError(400, "anything else"), "its log"),
    ],
)
def test_of_consul(error: Exception, word: str) -> None:
    assert word in consul.remedy(error, WHERE)
