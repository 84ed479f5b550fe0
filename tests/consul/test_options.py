"""LOCATION and OPTIONS: what is taken, what is refused and by which words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from django_distlock import InvalidLockBackendError, InvalidLockError, LockBackendError, lock
from django_distlock.backends.consul import ConsulBackend
from django_distlock.conf import parse
from tests.consul.tools import Opener
from tests.servers import Consul


def made(location: Any = None, **options: Any) -> ConsulBackend:
    """Return a backend that has asked nobody yet."""
    conf = {"BACKEND": "x", "LOCATION": location, "OPTIONS": options}
    return ConsulBackend("mine", parse("mine", conf))


@pytest.mark.parametrize(
    ("location", "said"),
    [
        (8500, "URL of a Consul agent"),
        ([], "URL of a Consul agent"),
        ("localhost:8500", "http://127.0.0.1:8500"),
        ("redis://localhost", "http://127.0.0.1:8500"),
        ("http://user:secret@localhost", "OPTIONS['TOKEN']"),
        ("http://localhost/v1", "http://127.0.0.1:8500"),
        (["http://a", "http://a:8500"], "twice"),
    ],
)
def test_a_wrong_location(location: Any, said: str) -> None:
    with pytest.raises(InvalidLockBackendError) as raised:
        made(location)
    assert "DISTLOCKS['mine']['LOCATION']" in str(raised.value)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [
        {"BEHAVIOR": "Delete"},
        {"LOCK_DELAY": -1},
        {"LOCK_DELAY": 61},
        {"LOCK_DELAY": True},
        {"SESSION_TTL_MIN": 0},
        {"SESSION_TTL_MIN": "10s"},
        {"TOKEN": ""},
        {"TOKEN": "a\nb"},
        {"ROOT": ""},
        {"ROOT": "/a"},
        {"ROOT": "a//b"},
        {"ROOT": 'a"b'},
        {"NODE_CHECKS": "serfHealth"},
        {"SERVICE_CHECKS": [1]},
        {"DATACENTER": 1},
        {"CA_FILE": "/nowhere/at/all"},
        {"LOCK_DELAYS": 1},
    ],
    ids=str,
)
def test_a_wrong_option(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidLockBackendError) as raised:
        made(**options)
    assert next(iter(options)) in str(raised.value)


def test_a_token_is_never_shown() -> None:
    with pytest.raises(InvalidLockBackendError) as raised:
        made(TOKEN="secret\n")
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(made(TOKEN="secret"))


def test_files_of_tls_need_https(tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    file.write_text("no certificate")
    with pytest.raises(InvalidLockBackendError, match="https"):
        made(CA_FILE=str(file))
    with pytest.raises(InvalidLockBackendError, match="needs CERT_FILE"):
        made("https://localhost", KEY_FILE=str(file))
    with pytest.raises(InvalidLockBackendError, match="CA_FILE"):
        made("https://localhost", CA_FILE=str(file))


def test_the_driver_is_named_with_its_extra() -> None:
    with (
        mock.patch.dict(sys.modules, {"httptools": None}),
        pytest.raises(InvalidLockBackendError, match=r"django-distlock\[consul\]"),
    ):
        made()


def test_what_a_vanished_holder_costs() -> None:
    """Say what the docs say: 95 seconds at a ttl of 30."""
    assert made().max_ttl(30) == 2 * 40 + 15
    assert made().max_ttl(8) == 2 * 10 + 15
    assert made(LOCK_DELAY=0, SESSION_TTL_MIN=2).max_ttl(1) == 4


def test_the_longest_ttl(opened: Opener, server: Consul) -> None:
    """Take 18 hours, and refuse more before Consul does."""
    backend = opened(server.url)
    with lock("a", using=backend.alias, ttl=64_800):
        pass
    with pytest.raises(InvalidLockError):
        lock("a", using=backend.alias, ttl=64_801).acquire()


def test_a_session_shorter_than_the_servers_allow(opened: Opener, server: Consul) -> None:
    """Name the option when the servers have another minimum."""
    backend = opened(server.url)
    with (
        mock.patch.object(backend._sessions, "_least", 0.2),
        pytest.raises(LockBackendError) as raised,
    ):
        lock("a", using=backend.alias, ttl=0.1).acquire()
    assert "SESSION_TTL_MIN" in str(raised.value)


def test_a_check_that_the_node_does_not_have(opened: Opener, server: Consul) -> None:
    backend = opened(server.url, NODE_CHECKS=["nothing"])
    with pytest.raises(LockBackendError) as raised:
        lock("a", using=backend.alias).acquire()
    assert "NODE_CHECKS" in str(raised.value)


def test_a_session_ends_with_a_check(opened: Opener, server: Consul) -> None:
    """Free the lock, after the lock-delay, when a health check of the node fails."""
    check = {"Name": "mine", "ID": "mine", "TTL": "60s", "Status": "passing"}
    server.ask("PUT", "/v1/agent/check/register", check)
    try:
        backend = opened(server.url, NODE_CHECKS=["serfHealth", "mine"])
        with lock("a", using=backend.alias, ttl=20):
            pass
        first = lock("a", using=backend.alias, ttl=20).acquire()
        assert first is not None
        server.ask("PUT", "/v1/agent/check/fail/mine")
        other = opened(server.url, prefix=backend.conf.prefix)
        with lock("a", using=other.alias, ttl=20, wait=10) as second:
            assert second.fencing_token > first.fencing_token
        first._drop()
    finally:
        server.ask("PUT", "/v1/agent/check/deregister/mine")


def test_a_lock_delay_shorter_than_the_ttl_is_warned_of_with_checks() -> None:
    """Warn when a session can end early, and not of the delay alone."""
    checks = ["serfHealth"]
    assert made(LOCK_DELAY=1).check() == []
    assert made(LOCK_DELAY=30, NODE_CHECKS=checks).check() == []
    for option in ("NODE_CHECKS", "SERVICE_CHECKS"):
        (found,) = made(**{option: checks}).check()
        assert (found.id, option in found.msg) == ("distlock.W018", True)


def test_keys_stand_below_the_root(opened: Opener, server: Consul) -> None:
    backend = opened(server.url, ROOT="shop/locks")
    with lock("a", using=backend.alias):
        assert any(key.startswith("shop/locks/1/") for key in server.all_keys())


def test_a_datacenter_that_is_not_there(opened: Opener, server: Consul) -> None:
    backend = opened(server.url, DATACENTER="nowhere")
    with pytest.raises(LockBackendError, match=r"nowhere|datacenter"):
        lock("a", using=backend.alias).acquire()
    backend = opened(server.url, DATACENTER="dc1")
    with lock("a", using=backend.alias):
        pass
