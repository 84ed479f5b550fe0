"""LOCATION and OPTIONS, what they mean to the servers, and what is wrong with them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from django_distlock import LockBackendError, lock
from django_distlock.backends.zookeeper import ZooKeeperBackend
from django_distlock.backends.zookeeper.requests import contenders, data_of, node_of, words_of
from django_distlock.conf import parse
from django_distlock.core.values import Claim
from django_distlock.exceptions import InvalidLockBackendError
from tests.claims import claim, granted, soon
from tests.servers import ZooKeeper
from tests.zookeeper.tools import BACKEND, Opener, ask, queue_of

ROOT = Path(__file__).parents[2]


def backend_of(location: Any, **options: Any) -> ZooKeeperBackend:
    """Return a backend that is not connected."""
    conf = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    return ZooKeeperBackend("zk", parse("zk", conf))


@pytest.mark.parametrize(
    ("location", "options", "hosts", "base"),
    [
        ("zk-a", {}, "zk-a", "/distlock/1"),
        ("a:2181, b:2182 ,c", {}, "a:2181,b:2182,c", "/distlock/1"),
        (["a:2181", "b:2181"], {}, "a:2181,b:2181", "/distlock/1"),
        ("a:2181,b:2181/shop/eu", {}, "a:2181,b:2181", "/shop/eu/distlock/1"),
        ("a:2181", {"CHROOT": "/shop/"}, "a:2181", "/shop/distlock/1"),
        ("[::1]:2181", {}, "[::1]:2181", "/distlock/1"),
    ],
)
def test_a_location_is_read(location: Any, options: dict[str, Any], hosts: str, base: str) -> None:
    facts = backend_of(location, **options).facts
    assert (facts.hosts, facts.base) == (hosts, base)


@pytest.mark.parametrize(
    ("location", "options", "said"),
    [
        (None, {}, "LOCATION"),
        ("", {}, "LOCATION"),
        ([], {}, "LOCATION"),
        ([1], {}, "list of 'host:port'"),
        ("a:port", {}, "'a:port' is no 'host:port'"),
        ("a:0", {}, "no 'host:port'"),
        ("a/x//y", {}, "path"),
        ("a/../y", {}, "path"),
        ("a/x", {"CHROOT": "/y"}, "leave one of them out"),
        ("a", {"CHROOT": "x"}, "'/shop'"),
        ("a", {"ACL": "creator"}, "needs AUTH or SASL"),
        ("a", {"ACL": "none"}, "'open' or 'creator'"),
        ("a", {"AUTH": "digest:x"}, "scheme, credential"),
        ("a", {"AUTH": [("digest",)]}, "scheme, credential"),
        ("a", {"AUTH": [("digest", 1)]}, "scheme, credential"),
        ("a", {"TLS": {"CAA": "x"}}, "known are CA"),
        ("a", {"TLS": {"CA": 5}}, "CA is a str"),
        ("a", {"TLS": {"VERIFY": "no"}}, "VERIFY is a bool"),
        ("a", {"TLS": {"KEY": "/x"}}, "KEY needs CERT"),
        ("a", {"TLS": {"CA": "/no/such"}}, "CA cannot be loaded"),
        ("a", {"TLS": {"CERT": "/no/such", "KEY": "/x"}}, "CERT or KEY cannot be loaded"),
        ("a", {"TLS": {"VERIFY": False, "CHECK_HOSTNAME": True}}, "needs VERIFY"),
        ("a", {"SASL": 1}, "dict"),
        ("a", {"SESSION_TIMEOUT": 0}, "positive number"),
        ("a", {"SESSIONS": 3}, "unknown keys"),
    ],
)
def test_wrong_settings_are_refused(location: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidLockBackendError, match="DISTLOCKS") as refused:
        backend_of(location, **options)
    assert said in str(refused.value)


def test_a_missing_driver_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['kazoo'] = None\n"
        "from django.conf import settings; settings.configure()\n"
        "from django_distlock.backends.zookeeper import ZooKeeperBackend as Z\n"
        "from django_distlock.conf import parse\n"
        "try: Z('zk', parse('zk', {'BACKEND': 'x', 'LOCATION': 'a'}))\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert 'pip install "django-distlock[zookeeper]"' in done.stdout


def test_only_the_creator_may_touch_the_nodes(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Keep others out by digest, and tell them what to look at."""
    options: dict[str, Any] = {"CHROOT": f"/closed{abs(hash(name))}"}
    ours = opened(server.address, AUTH=[("digest", "shop:secret")], **options)
    with lock(name, using=ours.alias):
        same = opened(server.address, AUTH=[("digest", "shop:secret")], **options)
        assert lock(name, using=same.alias).acquire(wait=0) is None
        for auth in ({}, {"AUTH": [("digest", "shop:wrong")]}):
            stranger = opened(server.address, **options, **auth)
            with pytest.raises(LockBackendError, match="Look at AUTH"):
                lock(name, using=stranger.alias).acquire(wait=0)
            with pytest.raises(LockBackendError, match="Look at AUTH"):
                list(stranger.held())
            assert "secret" not in repr(ours.facts)


def test_a_chroot_is_made_and_keeps_apart(server: ZooKeeper, opened: Opener, name: str) -> None:
    one, two = (opened(f"{server.address}/made{n}/{abs(hash(name))}") for n in (1, 2))
    with lock(name, using=one.alias), lock(name, using=two.alias):
        assert len(queue_of(one, name)) == 1
        assert [info.name for info in two.held()] == [name]


def refusal(backend: ZooKeeperBackend, name: str) -> str:
    """Return what an attempt is told: a new server's first handshakes may outlast its limit."""
    with pytest.raises(LockBackendError) as raised:
        lock(name, using=backend.alias).acquire(wait=0)
    return str(raised.value)


def test_tls(name: str, opened: Opener) -> None:
    """Talk by TLS, with the server's certificate verified."""
    with ZooKeeper(tls=True) as server:
        where = f"localhost:{server.secure}"
        backend = opened(where, TLS={"CA": server.certificate, "CHECK_HOSTNAME": True})
        with lock(name, using=backend.alias, wait=10):
            assert len(queue_of(backend, name)) == 1
        unknown = opened(where, TLS={}, COMMAND_TIMEOUT=1.0)
        told = re.compile("certificate verify failed.*TLS in OPTIONS")
        soon(lambda: told.search(refusal(unknown, name)) is not None, within=60.0)


def test_a_server_that_demands_a_certificate(name: str, opened: Opener) -> None:
    with ZooKeeper(mutual=True) as server:
        where, (cert, key) = f"localhost:{server.secure}", server.client
        backend = opened(where, TLS={"CA": server.certificate, "CERT": cert, "KEY": key})
        with lock(name, using=backend.alias, wait=10):
            assert len(queue_of(backend, name)) == 1
        without = opened(where, TLS={"CA": server.certificate}, COMMAND_TIMEOUT=1.0)
        with pytest.raises(LockBackendError, match=r"no connection"):
            lock(name, using=without.alias).acquire(wait=0)


def test_the_timeout_that_the_servers_agreed_to_counts(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    """Count with what the servers keep, not with what was asked for; and say so in the check."""
    for asked, kept in ((0.1, 0.4), (2.0, 2.0), (90.0, 60.0)):
        backend = opened(server.address, session=asked)
        mine = claim(backend, name)
        granted(backend, mine, limit=5.0)
        assert backend._session.timeout == pytest.approx(kept, abs=0.01)
        until = backend._session.sure_until(backend._session.id)
        assert until <= backend.clock() + kept
        assert backend.max_ttl(0.1) >= 1.5 * kept
        backend.release(mine)
        ids = [message.id for message in backend.check_deploy()]
        assert ids == (["distlock.W031"] if asked != kept else []) + ["distlock.W032"]


def test_the_check_says_when_no_server_answers(opened: Opener) -> None:
    from django_distlock.backends.zookeeper import checks

    backend = opened("127.0.0.1:1,127.0.0.1:2")
    try:
        checks.LIMIT, limit = 0.3, checks.LIMIT
        (message,) = backend.check_deploy()
    finally:
        checks.LIMIT = limit
    assert message.id == "distlock.W030"
    assert "no connection" in message.msg


def test_a_host_without_an_address_is_named(server: ZooKeeper, opened: Opener, name: str) -> None:
    backend = opened("nowhere.invalid:2181", COMMAND_TIMEOUT=1.0)
    with pytest.raises(LockBackendError, match=r"no address is known of nowhere\.invalid"):
        lock(name, using=backend.alias).acquire(wait=0)
    some = opened(f"nowhere.invalid:2181,{server.address}")
    with lock(name, using=some.alias):
        pass


def test_names_and_notes_go_through_a_node() -> None:
    """Keep any name (I6, V23), and nodes of any owner in order, also past 2**31 of them."""
    for text in ("", "/lead", "..", "a\0b", "\ud800", "x" * 10_000, "😀"):
        mine = Claim(text, "key", "owner", 1.0, f"note {text}")
        data = data_of(mine)
        assert words_of(data) == (text, f"note {text}")
        assert len(data) < 1000
    for broken in (None, b"", b"x", b"[1]", b"[1, 2]", b"{}"):
        assert words_of(broken) == ("", "")
    owners = ["0" * 32, "x1", "a/b", "..", "\ud800", "ab-c"]
    nodes = [f"{node_of(owner)}{number:010d}" for number, owner in enumerate(owners)]
    assert not any("/" in node for node in nodes)
    assert [each.owner for each in contenders(nodes[::-1])] == owners
    wrapped = ["b--2147483648", "a-2147483647", "notes", "c--2147483647", "x-", "xz-1"]
    assert [each.owner for each in contenders(wrapped)] == ["a", "b", "c"]


def test_an_old_server_without_containers(server: ZooKeeper, opened: Opener, name: str) -> None:
    """Make plain nodes where the server knows no others."""
    backend = opened(server.address)
    backend._algorithm._containers = False
    mine = claim(backend, name)
    granted(backend, mine)
    backend.release(mine)
    entry = f"{backend.facts.base}/{mine.key}"
    assert ask(backend, "Exists", entry, None).ephemeralOwner == 0
    backend.clean(older_than=60)  # perhaps of what other tests left, long ago
    assert ask(backend, "Exists", entry, None) is not None


def test_a_certificate_of_another_name_is_refused(name: str, opened: Opener) -> None:
    """Unless the check of the name is switched off; by default it is on."""
    from django_distlock.backends.zookeeper.options import facts_of

    settings: list[tuple[dict[str, bool], bool]] = [
        ({}, True),
        ({"VERIFY": False}, False),
        ({"CHECK_HOSTNAME": False}, False),
        ({"VERIFY": True, "CHECK_HOSTNAME": True}, True),
    ]
    for options, checks in settings:
        conf = parse("a", {"BACKEND": BACKEND, "LOCATION": "a"})
        assert facts_of("a", conf, {"TLS": options}).client["check_hostname"] is checks
    with ZooKeeper(tls=True) as server:  # the address by another name
        where = f"127.1:{server.secure}"
        refused = opened(where, TLS={"CA": server.certificate}, COMMAND_TIMEOUT=1.0)
        reason = re.compile("certificate is not valid for|mismatch")
        soon(lambda: reason.search(refusal(refused, name)), within=60.0)
        trusted = opened(where, TLS={"CA": server.certificate, "CHECK_HOSTNAME": False})
        with lock(name, using=trusted.alias, wait=10):
            pass


# kazoo's thread dies of it, which is how it gives up.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_is_not_let_in_is_told_at_once(
    server: ZooKeeper, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by SASL without its package: that no server answers would be wrong, and late."""
    monkeypatch.setattr("kazoo.protocol.connection.PURESASL_AVAILABLE", False)
    login = {"mechanism": "DIGEST-MD5", "username": "u", "password": "p"}
    backend = opened(server.address, SASL=login)

    async def use() -> None:
        async with lock(name, using=backend.alias, wait=20):
            raise AssertionError

    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(LockBackendError, match="pure-sasl"):
            lock(name, using=backend.alias, wait=20).acquire()
        with pytest.raises(LockBackendError, match="pure-sasl"):
            asyncio.run(use())
    assert time.monotonic() - started < 15


def test_a_child_has_a_session_of_its_own(server: ZooKeeper, opened: Opener, name: str) -> None:
    backend = opened(server.address)
    with lock(name, using=backend.alias):
        pass
    parents, keeper = backend._session, backend._keeper
    client, session = parents._client, parents.id
    backend.forget_parent()
    try:
        with lock(name, using=backend.alias):
            assert backend._session.id not in (None, session)
    finally:
        keeper.close()
        client.stop()
        client.close()
