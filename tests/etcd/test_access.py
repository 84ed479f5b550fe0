"""LOCATION and OPTIONS of the etcd backend: users, certificates, other programs' keys."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from django_distlock import LockBackendError, LockInfo, LockNotHeldError, lock
from django_distlock.backends.etcd.protocol import base64
from django_distlock.exceptions import InvalidLockBackendError
from tests.backends.tools import elsewhere
from tests.claims import claim, excludes, granted, refused
from tests.etcd.tools import Opener, entry_of
from tests.servers import Etcd, EtcdCluster

ROLE = "locker"
LOGIN = {"USER": "locks", "PASSWORD": 'sécret "1"'}


@pytest.fixture(scope="module")
def closed() -> Iterator[Etcd]:
    """A server that lets a user with few rights in, and root; tokens last for a second."""
    with Etcd(options=["--auth-token-ttl=1"]) as server:
        server.ask("auth/user/add", {"name": "root", "password": "root"})
        server.ask("auth/user/add", {"name": LOGIN["USER"], "password": LOGIN["PASSWORD"]})
        server.ask("auth/role/add", {"name": "root"})
        server.ask("auth/role/add", {"name": ROLE})
        first, end = (b64encode(each).decode() for each in (b"distlock/", b"distlock0"))
        permission = {"permType": "READWRITE", "key": first, "range_end": end}
        server.ask("auth/role/grant", {"name": ROLE, "perm": permission})
        server.ask("auth/user/grant", {"user": "root", "role": "root"})
        server.ask("auth/user/grant", {"user": LOGIN["USER"], "role": ROLE})
        server.ask("auth/enable")
        yield server


def test_a_user_with_few_rights(closed: Etcd, opened: Opener, name: str) -> None:
    backend = opened(closed.url, **LOGIN)
    lease = lock(name, using=backend.alias).acquire()
    assert lease is not None
    assert elsewhere(lambda: lock(name, using=backend.alias, wait=0.2).acquire()) is None
    lease.renew()
    assert [info.name for info in backend.held()] == [name]
    lease.release()


def test_a_token_that_has_expired_is_drawn_anew(closed: Etcd, opened: Opener, name: str) -> None:
    backend = opened(closed.url, **LOGIN)

    async def use() -> None:
        async with lock(name, using=backend.alias):
            pass

    for pause in (0, 2.2):
        time.sleep(pause)
        with lock(name, using=backend.alias):
            pass
    time.sleep(2.2)
    asyncio.run(use())
    closed.restart()  # which forgets all tokens
    with lock(name, using=backend.alias):
        pass


@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        pytest.param({}, "user name is empty", "Look at USER and PASSWORD", id="none"),
        pytest.param(
            LOGIN | {"PASSWORD": "hunter2"},
            "authentication failed",
            "Look at USER and PASSWORD",
            id="wrong",
        ),
        pytest.param(
            LOGIN | {"ROOT": "elsewhere"}, "permission denied", "Grant the user", id="no right"
        ),
    ],
)
def test_who_is_not_let_in_is_told(
    options: dict[str, str], said: str, remedy: str, closed: Etcd, opened: Opener, name: str
) -> None:
    backend = opened(closed.url, **options)
    with pytest.raises(LockBackendError) as caught:
        lock(name, using=backend.alias).acquire(wait=0)
    for word in (said, remedy, closed.url):
        assert word in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_encrypted(opened: Opener, name: str) -> None:
    with Etcd(tls=True) as server:
        backend = opened(server.url, CA_FILE=server.certificate)
        excludes(backend, name)
        assert backend.check_deploy() == []
        stranger = opened(server.url)
        with pytest.raises(LockBackendError, match=r"certificate.*CA_FILE"):
            lock(name, using=stranger.alias).acquire(wait=0)


def test_a_server_that_demands_a_certificate(opened: Opener, name: str) -> None:
    with Etcd(mutual=True) as server:
        cert, key = server.client
        backend = opened(server.url, CA_FILE=server.certificate, CERT_FILE=cert, KEY_FILE=key)
        excludes(backend, name)
        without = opened(server.url, CA_FILE=server.certificate)
        with pytest.raises(LockBackendError, match=r"(?i)certificate"):
            lock(name, using=without.alias).acquire(wait=0)
        with pytest.raises(LockBackendError, match=r"(?i)certificate"):
            asyncio.run(lock(name, using=without.alias).aacquire(wait=0))


def test_the_keys_are_where_they_are_said_to_be(server: Etcd, opened: Opener) -> None:
    backend = opened(server.url, prefix="a/b c", ROOT="shop/locks")
    with lock("name", using=backend.alias):
        assert f"shop/locks/1/a%2Fb%20c/{backend.key('name')}/" in " ".join(server.all_keys())


def test_what_others_put_there_is_not_shown(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url, prefix=name)
    key = base64(f"{backend.located.root}{'0' * 64}/x")
    server.ask("kv/put", {"key": key, "value": "AAAA"})
    assert list(backend.held()) == []


@pytest.mark.parametrize("wait", [0, 20.0])
def test_what_others_put_into_a_line_asks_for_nothing(
    wait: float, server: Etcd, opened: Opener, name: str
) -> None:
    """A key without a lease would never end: it neither blocks the lock nor is waited for."""
    backend = opened(server.url, prefix=name)

    def put(what: str) -> None:
        key = base64(f"{backend.located.root}{backend.key(name)}/{what}")
        server.ask("kv/put", {"key": key, "value": "AAAA"})

    put("a")
    put("b")
    mine = lock(name, using=backend.alias).acquire(wait=wait)
    assert mine is not None
    mine.renew()
    put("c")
    waiter = claim(backend, name)
    refused(backend, waiter)
    holder = next(each for each in backend._algorithm.entries._all.values() if each.granted)
    assert entry_of(backend, waiter).ahead == holder.keys.own
    for info in (backend.inspect(name), *backend.held()):
        assert isinstance(info, LockInfo)
        assert (info.fencing_token, info.waiters) == (mine.fencing_token, 1)
    stranger = opened(server.url, prefix=name)  # which knows of no place
    assert lock(name, using=stranger.alias).acquire(wait=0) is None
    stranger.force_release(name, fencing_token=mine.fencing_token)
    with pytest.raises(LockNotHeldError):
        mine.renew()
    granted(backend, waiter)
    assert backend.release(waiter)
    assert backend.inspect(name) is None


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"LOCATION": None}, "LOCATION'] is the URL of an etcd"),
        ({"LOCATION": []}, "LOCATION'] is the URL of an etcd"),
        ({"LOCATION": "etcd.example"}, "http://127.0.0.1:2379"),
        ({"LOCATION": "http://me:word@a"}, "OPTIONS['PASSWORD']"),
        ({"LOCATION": ["http://a:1", "http://a:1"]}, "names http://a:1 twice"),
        ({"OPTIONS": {"USER": "me"}}, "USER and PASSWORD go together"),
        ({"OPTIONS": {"USER": "me", "PASSWORD": ""}}, "a str that is not empty"),
        ({"LOCATION": "https://a", "OPTIONS": {"KEY_FILE": "k"}}, "KEY_FILE needs CERT_FILE"),
        ({"OPTIONS": {"CA_FILE": "c"}}, "begin with https"),
        ({"LOCATION": "https://a", "OPTIONS": {"CA_FILE": "/no/such"}}, "cannot be loaded"),
        ({"OPTIONS": {"ROOT": 5}}, "ROOT"),
        ({"OPTIONS": {"NONSENSE": 5}}, "unknown keys: NONSENSE"),
    ],
)
def test_wrong_settings_are_told(conf: dict[str, Any], said: str, opened: Opener) -> None:
    location = conf.get("LOCATION", "http://127.0.0.1:2379")
    with pytest.raises(InvalidLockBackendError) as caught:
        opened(location, **conf.get("OPTIONS", {}))
    assert said in str(caught.value)


def test_what_check_deploy_says(server: Etcd, opened: Opener) -> None:
    assert opened(server.url).check_deploy() == []
    away = [each.id for each in opened("http://127.0.0.1:1").check_deploy()]
    assert away == ["distlock.W040"]
    plain = opened("http://etcd.invalid", **LOGIN).check_deploy()
    assert [each.id for each in plain] == ["distlock.W041", "distlock.W040"]
    with Etcd() as other:
        apart = opened([server.url, other.url]).check_deploy()
    assert [each.id for each in apart] == ["distlock.E040"]


def test_what_check_deploy_says_of_a_cluster(cluster: EtcdCluster, opened: Opener) -> None:
    assert opened(cluster.urls).check_deploy() == []
    one = opened(cluster.urls[0]).check_deploy()
    assert [each.id for each in one] == ["distlock.W042"]
