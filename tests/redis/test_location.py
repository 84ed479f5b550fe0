"""LOCATION and OPTIONS: what is taken, and what is refused with a reason."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import redis
from django.conf import settings
from django.core.cache import caches
from django.test import override_settings
from redis.exceptions import RedisError

from django_distlock import InvalidLockBackendError, LeaseLostError, LockBackendError, lock
from tests.claims import claim, granted
from tests.redis.tools import BACKEND, Opener, keys
from tests.servers import Redis, Sentinel

WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ("nowhere", {}, "CACHES has no alias 'nowhere'"),
    ("default", {}, "is no cache on one Redis"),
    (None, {}, "is no cache on one Redis"),
    (7, {}, "not int"),
    (["redis://a", "redis://b"], {}, "not list"),
    ("http://a", {}, "no URL of a Redis"),
    ("redis://a?colour=red", {}, "unknown arguments: colour"),
    ("redis://a?db=red", {}, "Invalid value"),
    ("redis://a", {"CONNECTION": {"colour": 1, "host": "b"}}, "unknown keys: colour, host"),
    ("redis://a", {"CONNECTION": {"ssl_ca_certs": "/x"}}, "write rediss://"),
    ("redis://a?ssl_cert_reqs=none", {}, "write rediss://"),
    ("redis://a", {"CONNECTION": 1}, "a dict is expected"),
    ("redis://a", {"MAX_CONNECTIONS": 1}, "from 2 to 10000"),
    ("unix://", {}, "names no socket file"),
    ("redis://a", {"SCRIPTING": 1}, "True or False"),
    ("redis://a", {"WAIT_REPLICAS": -1}, "a whole number from 0 to 100"),
    ("redis://a", {"SENTINELS": ["a"]}, "a list of"),
    ("redis:///0", {"SENTINELS": [("a", 1)]}, "name of the service"),
    ("redis://a", {"SENTINEL_KWARGS": {}}, "needs SENTINELS"),
    ("redis://a", {"CLUSTER": True, "SCRIPTING": False}, "leave one of"),
    ("redis://a", {"CLUSTER": True, "WAIT_REPLICAS": 1}, "leave one of"),
    ("redis://a/3", {"CLUSTER": True}, "databases other than 0"),
    (None, {"CLUSTER": True}, "the URL of a node"),
    ("a", {"CLUSTER": True}, "no URL of a node"),
    ("redis://a", {"QUEUE_CONNECTIONS": 1}, "unknown keys: QUEUE_CONNECTIONS"),
]


@pytest.mark.parametrize(("location", "options", "said"), WRONG)
def test_what_is_wrong_is_named(
    opened: Opener, location: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidLockBackendError, match=said) as caught:
        opened(location, **options)
    assert "DISTLOCKS['redisbackend-" in str(caught.value)


def test_arguments_of_connections_are_taken(opened: Opener) -> None:
    backend = opened("redis://a?db=3&client_name=locks&socket_keepalive=1")
    assert backend.located.facts["client_name"] == "locks"
    assert backend.located.facts["socket_keepalive"] is True
    assert backend.located.facts["db"] == 3


def test_a_password_is_not_shown(opened: Opener) -> None:
    with pytest.raises(InvalidLockBackendError) as caught:
        opened("redis://user:secret@a?colour=red")
    assert "secret" not in str(caught.value)
    assert "user" in str(caught.value)
    backend = opened("redis://user:secret@127.0.0.1:1/0")
    with pytest.raises(LockBackendError) as failed:
        lock("x", using=backend.alias).acquire()
    assert "secret" not in str(failed.value)
    assert "127.0.0.1:1" in str(failed.value)
    assert "secret" not in repr(backend.located)


def test_a_cache_says_how_to_connect_and_what_keys_begin_with(
    server: Redis, opened: Opener, name: str
) -> None:
    for cache, database, start in (
        ("django-redis", "1", "shop:3:distlock:1:{"),
        ("django", "2", ":1:distlock:1:{"),
    ):
        backend = opened(cache)
        server.execute("-n", database, "FLUSHDB")
        mine = claim(backend, name)
        granted(backend, mine)
        found = server.execute("-n", database, "KEYS", "*").split()
        assert len(found) == 2
        assert all(key.startswith(start) for key in found)
        assert str(caches[cache].make_key("")) in start
        assert backend.release(mine)


@pytest.mark.parametrize("cache", ["django-redis", "django"])
def test_a_cache_that_is_cleared_loses_its_locks_and_no_token_comes_again(
    opened: Opener, name: str, cache: str
) -> None:
    """Deploys do that: each holder is told, and the next token is higher than the last one."""
    backend = opened(cache)
    lease = lock(name, using=backend.alias, ttl=30).acquire()
    assert lease is not None
    caches[cache].clear()
    with pytest.raises(LeaseLostError):
        lease.renew()
    with lock(name, using=backend.alias, wait=0) as later:
        assert later.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLostError):
        lease.release()


def test_caches_with_another_prefix_or_version_share_no_lock(
    server: Redis, opened: Opener, name: str
) -> None:
    here = settings.CACHES["django-redis"]
    with override_settings(CACHES={**settings.CACHES, "other": here | {"VERSION": 4}}):
        one, two = opened("django-redis"), opened("other")
        mine, theirs = claim(one, name), claim(two, name)
        granted(one, mine)
        granted(two, theirs)
        for backend, each in ((one, mine), (two, theirs)):
            assert [info.name for info in backend.held()] == [name]
            assert backend.release(each)


def test_a_pool_that_is_exhausted_is_not_ours(opened: Opener, name: str) -> None:
    few = {"CONNECTION_POOL_KWARGS": {"max_connections": 1}}
    here = settings.CACHES["django-redis"]
    url = here["LOCATION"].rpartition("/")[0] + "/9"  # django-redis has one pool for each URL
    with override_settings(
        CACHES={**settings.CACHES, "small": here | {"LOCATION": url, "OPTIONS": few}}
    ):
        pool = caches["small"].client.get_client().connection_pool  # type: ignore[attr-defined]
        taken = pool.get_connection()
        with pytest.raises(RedisError, match="Too many connections"):
            pool.get_connection()
        backend = opened("small")
        mine = claim(backend, name)
        granted(backend, mine)
        assert backend.release(mine)
        pool.release(taken)
        pool.disconnect()


def test_a_cache_whose_master_sentinel_names(name: str, opened: Opener) -> None:
    with Redis(persistent=False) as master, Sentinel(master) as sentinel:
        options = {
            "CLIENT_CLASS": "django_redis.client.SentinelClient",
            "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
            "SENTINELS": [(sentinel.host, sentinel.port)],
        }
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://main/0"}
        with override_settings(CACHES={**settings.CACHES, "watched": cache | {"OPTIONS": options}}):
            backend = opened("watched")
            mine = claim(backend, name)
            granted(backend, mine)
            found = keys(master)
            assert len(found) == 2
            assert all(key.startswith(":1:distlock:1:{") for key in found)

            async def main() -> None:
                assert await backend.arenew(mine)

            asyncio.run(main())
            assert backend.located.server == ("sentinel", backend.located.sentinel[0], "main")
            assert backend.release(mine)
            caches["watched"].client.close()  # type: ignore[attr-defined]


def test_a_unix_socket(server: Redis, opened: Opener, name: str) -> None:
    assert server.socket
    backend = opened(f"unix://{server.socket}?db=0")
    mine = claim(backend, name)
    granted(backend, mine)
    assert opened(server.url()).inspect(name) is not None
    assert backend.release(mine)


def test_the_scheme_of_valkey(server: Redis, opened: Opener, name: str) -> None:
    backend = opened(server.url().replace("redis://", "valkey://"))
    mine = claim(backend, name)
    granted(backend, mine)
    assert backend.release(mine)


def test_tls_and_a_user_with_few_rights(name: str, opened: Opener) -> None:
    with Redis(tls=True, password="of the admin", persistent=False) as server:
        server.execute(
            *("ACL", "SETUSER", "locker", "on", ">let me in", "resetkeys", "~*distlock:1:*"),
            *("+@string", "+@keyspace", "+@list", "+@set", "+@scripting", "+@connection", "+time"),
        )
        backend = opened(server.url(user="locker", password="let me in"))
        mine = claim(backend, name)
        granted(backend, mine)
        assert [info.name for info in backend.held()] == [name]
        assert backend.renew_many([mine]) == [True]
        assert backend.release(mine)
        for url, said in (
            (server.url(user="locker", password="wrong"), "the user and the password"),
            (server.url(password=""), "the user and the password"),
            (server.url().partition("?")[0], "certificate.*ssl_ca_certs"),
        ):
            other = opened(url)
            with pytest.raises(LockBackendError, match=said):
                lock(name, using=other.alias).acquire()
        server.execute("ACL", "SETUSER", "locker", "-evalsha")
        with pytest.raises(LockBackendError, match="Allow the user"):
            lock(name, using=backend.alias).acquire()


def test_without_the_driver_the_extra_is_named() -> None:
    program = f"""
import sys
sys.modules["redis"] = None
from django.conf import settings
settings.configure(DISTLOCKS={{"default": {{"BACKEND": "{BACKEND}", "LOCATION": "redis://a"}}}})
from django_distlock.handler import locks
locks["default"]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "django-distlock[redis]"' in done.stderr


@pytest.mark.parametrize("version", ["5.2.1", "7.4.1"])
def test_an_old_driver_is_refused(
    server: Redis, opened: Opener, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(redis, "__version__", version)
    with pytest.raises(InvalidLockBackendError, match=f"redis-py {version} .* 8.0 or newer"):
        opened(server.url())
    monkeypatch.setattr(redis, "__version__", "10.0.0b1")
    opened(server.url())


def test_aliases_of_one_redis_are_cleaned_together(server: Redis, opened: Opener) -> None:
    one, two = opened(server.url(), prefix="a"), opened(server.url(), prefix="b")
    assert one.cleaned_with() == two.cleaned_with()
    assert one.cleaned_with() != opened(server.url(1)).cleaned_with()


@pytest.mark.parametrize(
    ("caches", "location", "named"),
    [
        ({"default": 4, "other": 5}, "redis://{host}/4", "'default'"),
        ({"default": 4, "other": 4}, "redis://{host}/4", "'default', 'other'"),
        ({"default": 4}, "default", "'default'"),
        ({"default": 4, "locks": 5}, "locks", ""),
        ({"default": 4, "locks": 4}, "locks", "'default'"),
        ({"default": 4}, "redis://{host}/5", ""),
    ],
)
def test_a_cache_in_the_database_of_the_locks_is_warned_of(
    server: Redis, opened: Opener, caches: dict[str, int], location: str, named: str
) -> None:
    kinds = ("django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache")
    for kind in kinds:
        given: dict[str, Any] = {
            alias: {"BACKEND": kind, "LOCATION": server.url(number)}
            for alias, number in caches.items()
        } | {"in memory": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
        with override_settings(CACHES=given):
            host = server.url(0).rpartition("/")[0].removeprefix("redis://")
            found = opened(location.format(host=host)).check_deploy()
        assert [each.id for each in found] == (["distlock.W014"] if named else [])
        assert all(f"the cache {named}, whose clear()" in each.msg for each in found)


@pytest.mark.parametrize(
    ("location", "options", "ignored"),
    [
        ("redis://a?max_connections=2&socket_timeout=1", {}, "max_connections, socket_timeout"),
        ("rediss://a?health_check_interval=3&ssl_ca_certs=/x", {}, "health_check_interval"),
        ("redis://a?protocol=3&decode_responses=True&family=0", {}, "decode_responses, family, p"),
        ("redis://a?timeout=3&retry_on_timeout=1", {}, "retry_on_timeout, timeout"),
        (["redis://a", "redis://b?socket_timeout=1"], {"CLUSTER": True}, "socket_timeout"),
    ],
)
def test_what_hosts_put_into_urls_is_ignored_with_a_warning(
    opened: Opener, location: Any, options: dict[str, Any], ignored: str
) -> None:
    backend = opened(location, **options)
    (warning,) = backend.check()
    assert warning.id == "distlock.W015"
    assert ignored in warning.msg
    assert "ssl_ca_certs" not in warning.msg
    assert opened("redis://a?ssl_=1".partition("?")[0]).check() == []


def test_what_connections_are_made_with(alone: Redis, opened: Opener, name: str) -> None:
    """Credentials that are asked for at each connection, as those of cloud services are."""
    from redis.credentials import CredentialProvider

    alone.execute("ACL", "SETUSER", "ours", "on", ">secret", "~*", "+@all")
    asked: list[str] = []

    class Provider(CredentialProvider):
        def get_credentials(self) -> tuple[str, str]:
            asked.append("once")
            return "ours", "secret"

    by_name = {"username": "ours", "password": "secret", "client_name": "locks"}
    for number, given in enumerate(({"credential_provider": Provider()}, by_name)):
        url = f"redis://other:wrong@127.0.0.1:{alone.port}/0"
        backend = opened(url, CONNECTION=given)
        with lock(f"{name}{number}", using=backend.alias):
            assert "user=ours" in alone.execute("CLIENT", "LIST")

        async def use(alias: str = backend.alias, number: int = number) -> None:
            async with lock(f"{name}{number}", using=alias):
                pass

        asyncio.run(use())
    assert "name=locks" in alone.execute("CLIENT", "LIST")
    assert len(asked) == 2
