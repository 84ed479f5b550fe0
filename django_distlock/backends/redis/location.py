"""LOCATION, read and judged: where a Redis is, how to connect to it, and what its keys begin with.

A LOCATION is an alias of CACHES, of django-redis or of Django's own Redis cache, or a URL.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError

from ...exceptions import InvalidLockBackendError

__all__ = ["PROTOCOL", "Target", "caches_beside", "locate", "locate_all", "require_redis"]

PROTOCOL = "distlock:1"
"""What every key begins with: the number is that of how the keys are read and written."""

OLDEST = 8
"""The first version of redis-py whose connections can be asked whether they are open."""

# What a connection of ours takes over from a pool, a URL or CONNECTION; the rest is ours to say.
_KEPT = {
    *("host", "port", "path", "db", "username", "password", "credential_provider", "client_name"),
    *("socket_keepalive", "socket_keepalive_options", "socket_type"),
}


# Of other clients, found in the URLs that hosting companies hand out.
_OF_OTHERS = {"protocol", "decode_responses", "encoding", "encoding_errors", "family", "timeout"}
_ADDRESS = {"host", "port", "path", "db", "socket_type"}


def require_redis(alias: str) -> None:
    """Raise InvalidLockBackendError unless redis-py is installed, as new as it has to be."""
    try:
        import redis
    except ImportError as error:
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]: the driver of Redis is not installed: "
            'pip install "django-distlock[redis]".'
        ) from error
    found = str(redis.__version__)
    major = found.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST:
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]: redis-py {found} is installed, and {OLDEST}.0 or newer is "
            f"needed: pip install 'redis>={OLDEST}.0'."
        )


@dataclass(frozen=True, slots=True)
class Target:
    """One Redis, or one cluster of it.

    ``shown`` is its address for people, without a password, and ``base`` what its keys begin with.
    """

    shown: str
    base: str
    facts: Mapping[str, Any] = field(repr=False)
    """What its connections are made with."""
    kind: str = "tcp"
    """``"tcp"``, ``"tls"`` or ``"unix"``."""
    sentinel: Any = field(default=None, repr=False)
    """(hosts and ports, the name of the service, what to connect to the sentinels with)."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Of a cluster, the nodes that are asked first for all the others."""
    ignored: tuple[str, ...] = ()
    """Arguments of the URL that mean nothing to locks."""

    @property
    def server(self) -> tuple[Any, ...]:
        """What is equal for two targets on one server, whatever the database and the account."""
        if self.sentinel is not None:
            return ("sentinel", self.sentinel[0], self.sentinel[1])
        if self.kind == "unix":
            return ("unix", self.facts.get("path"))
        host = str(self.facts.get("host") or "localhost").lower()
        loopback = host in ("localhost", "::1") or host.startswith("127.")
        return ("localhost" if loopback else host, int(self.facts.get("port") or 6379))

    @property
    def database(self) -> int:
        """The number of the database on the server."""
        return int(self.facts.get("db") or 0)

    def connection(self, limit: float) -> Any:
        """Return a connection that is not open yet, and waits up to ``limit`` for anything."""
        from redis import connection

        return self._make(connection, limit, limit)

    def aconnection(self, limit: float) -> Any:
        """Return a connection for asyncio; only its connecting is limited."""
        from redis.asyncio import connection

        return self._make(connection, limit, None)

    def _make(self, kinds: Any, limit: float, answers: float | None) -> Any:
        names = {"tcp": "", "tls": "SSL", "unix": "UnixDomainSocket"}
        kind = getattr(kinds, f"{names[self.kind]}Connection")
        return kind(**self._given(limit), socket_timeout=answers)

    def direct(self, connection: Any, limit: float) -> None:
        """Point a connection that is not open at the master of now, if Sentinel knows it."""
        if self.sentinel is None:
            return
        from redis.backoff import NoBackoff
        from redis.retry import Retry
        from redis.sentinel import Sentinel

        hosts, service, how = self.sentinel
        manager: Any = _manager(Sentinel, Retry(NoBackoff(), 0), hosts, how, limit)
        try:
            connection.host, connection.port = manager.discover_master(service)
        finally:
            for each in manager.sentinels:
                each.close()

    def was_demoted(self, answer: object) -> bool:
        """Return whether a server says that it is no master; its name may lead to another now."""
        if not isinstance(answer, Exception):
            return False
        from redis.exceptions import ReadOnlyError

        return isinstance(answer, ReadOnlyError)

    async def adirect(self, connection: Any, limit: float) -> None:
        """Point as `direct`."""
        if self.sentinel is None:
            return
        from redis.asyncio.retry import Retry
        from redis.asyncio.sentinel import Sentinel
        from redis.backoff import NoBackoff

        hosts, service, how = self.sentinel
        manager: Any = _manager(Sentinel, Retry(NoBackoff(), 0), hosts, how, limit)
        try:
            connection.host, connection.port = await manager.discover_master(service)
        finally:
            for each in manager.sentinels:
                await each.aclose()

    def _given(self, limit: float) -> dict[str, Any]:
        # Without a "retry" nothing is resent: that is decided above, where the command is known.
        # A server older than 7.2 refuses to be told of the driver, and redis-py's error keeps all
        # frames of its callers, with the lease in them, until the garbage collector comes.
        # No number is sent when it connects, see `commands.packer`: with this protocol it says no
        # HELLO, and the database is a text.
        return {
            "driver_info": None,
            **self.facts,
            "db": str(self.database or ""),
            "socket_connect_timeout": limit,
            "decode_responses": False,
            "protocol": 2,
        }


def _manager(kind: Any, retry: Any, hosts: Any, how: Mapping[str, Any], limit: float) -> Any:
    limits = {"socket_timeout": limit, "socket_connect_timeout": limit, "retry": retry}
    return kind(hosts, sentinel_kwargs={**limits, "protocol": 2, **how})


def locate(alias: str, location: Any, options: Mapping[str, Any]) -> Target:
    """Return where LOCATION is: an alias of CACHES (by default ``"default"``) or a URL.

    ``options`` are the judged OPTIONS: ``CLUSTER``, ``SENTINELS``, ``SENTINEL_KWARGS`` and
    ``CONNECTION`` are asked for here.
    """
    return _connected(alias, _locate(alias, location, options), options)


def _connected(alias: str, target: Target, options: Mapping[str, Any]) -> Target:
    """Return a target whose connections are made with what CONNECTION has."""
    given = options.get("CONNECTION", {})
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']['CONNECTION']"
    if unknown := sorted(key for key in given if key in _ADDRESS or not _is_kept(key)):
        raise InvalidLockBackendError(
            f"{where} has unknown keys: {', '.join(unknown)}. It may have credential_provider, "
            "username, password, client_name, socket_keepalive, socket_keepalive_options and "
            "ssl_..., as redis-py's connections know them."
        )
    facts = dict(target.facts)
    if "credential_provider" in given:  # redis-py takes either
        facts = {key: v for key, v in facts.items() if key not in ("username", "password")}
    facts.update(given)
    if target.kind != "tls" and any(key.startswith("ssl_") for key in facts):
        raise InvalidLockBackendError(
            f"{where}, or the URL: ssl_... needs TLS, and {target.shown} has none: write rediss://."
        )
    return replace(target, facts=facts)


def _locate(alias: str, location: Any, options: Mapping[str, Any]) -> Target:
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    if options.get("CLUSTER"):
        return _cluster(where, location)
    location = "default" if location is None else location
    if not isinstance(location, str):
        raise InvalidLockBackendError(
            f"{where} is an alias of CACHES or a URL such as 'redis://localhost:6379/0', not "
            f"{type(location).__name__}."
        )
    if "://" not in location:
        return _of_cache(where, location)
    target = _of_url(where, location)
    if hosts := options.get("SENTINELS"):
        service = target.facts.get("host")
        if not service:
            raise InvalidLockBackendError(
                f"{where}: with SENTINELS the host of the URL is the name of the service, as in "
                "'redis://mymaster/0'."
            )
        facts = {key: value for key, value in target.facts.items() if key not in ("host", "port")}
        how = options.get("SENTINEL_KWARGS", {})
        return replace(target, facts=facts, sentinel=(tuple(hosts), service, how))
    return target


def locate_all(alias: str, location: Any, options: Mapping[str, Any]) -> list[Target]:
    """Return where each of a list of URLs, or of aliases of CACHES, is."""
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    if not isinstance(location, list | tuple) or not location:
        raise InvalidLockBackendError(
            f"{where} is a list of URLs such as 'redis://one:6379/0', or of aliases of CACHES, not "
            f"{type(location).__name__}."
        )
    targets = []
    for each in location:
        if not isinstance(each, str):
            raise InvalidLockBackendError(
                f"{where} names a server by a URL or an alias of CACHES, not by "
                f"{type(each).__name__}."
            )
        target = _of_url(where, each) if "://" in each else _of_cache(where, each)
        targets.append(_connected(alias, target, options))
    return targets


def _of_url(where: str, url: str) -> Target:
    from redis import connection

    driver: Any = connection  # of which parts are untyped
    shown = _without_password(url)
    scheme, _, rest = url.partition("://")
    scheme = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
    try:
        given: dict[str, Any] = dict(driver.parse_url(f"{scheme}://{rest}"))
    except ValueError as error:
        raise InvalidLockBackendError(
            f"{where}: {shown!r} is no URL of a Redis: {error}. "
            "Known are redis://, rediss:// (TLS) and unix://."
        ) from error
    given.pop("connection_class", None)
    known = {*driver.URL_QUERY_ARGUMENT_PARSERS, *_OF_OTHERS}
    ignored = tuple(sorted(key for key in given if not _is_kept(key)))
    if unknown := [key for key in ignored if key not in known]:
        raise InvalidLockBackendError(
            f"{where}: {shown!r} has unknown arguments: {', '.join(unknown)}."
        )
    if scheme == "unix" and not given.get("path"):
        raise InvalidLockBackendError(f"{where}: {shown!r} names no socket file.")
    kind = {"rediss": "tls", "unix": "unix"}.get(scheme, "tcp")
    facts = {key: value for key, value in given.items() if _is_kept(key)}
    return Target(shown, PROTOCOL, facts, kind, ignored=ignored)


def _is_kept(key: str) -> bool:
    return key in _KEPT or key.startswith("ssl_")


def _without_password(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://..."
    user, at, host = parts.netloc.rpartition("@")
    user = f"{user.partition(':')[0]}:***" if ":" in user else user
    return f"{parts.scheme}://{user}{at}{host}{parts.path}"


def _cluster(where: str, location: Any) -> Target:
    urls = [location] if isinstance(location, str) else location
    if not isinstance(urls, list | tuple) or not urls:
        raise InvalidLockBackendError(
            f"{where}: with CLUSTER it is the URL of a node, or a list of such URLs."
        )
    targets = []
    for url in urls:
        if not isinstance(url, str) or "://" not in url:
            raise InvalidLockBackendError(f"{where}: {url!r} is no URL of a node of the cluster.")
        targets.append(_of_url(where, url))
    if any(target.kind == "unix" or target.facts.get("db") for target in targets):
        raise InvalidLockBackendError(
            f"{where}: a cluster has neither socket files nor databases other than 0."
        )
    nodes = tuple(
        (str(target.facts.get("host", "localhost")), int(target.facts.get("port", 6379)))
        for target in targets
    )
    shown = ", ".join(target.shown for target in targets)
    others = {key: v for key, v in targets[0].facts.items() if key not in ("host", "port", "db")}
    ignored = tuple(dict.fromkeys(each for target in targets for each in target.ignored))
    return Target(shown, PROTOCOL, others, targets[0].kind, nodes=nodes, ignored=ignored)


def _of_cache(where: str, location: str) -> Target:
    """Take over how a cache connects, and its KEY_PREFIX and VERSION."""
    try:
        cache: Any = caches[location]
    except InvalidCacheBackendError as error:
        raise InvalidLockBackendError(
            f"{where}: CACHES has no alias {location!r}. Name one of {sorted(caches.settings)}, or "
            "give a URL such as 'redis://localhost:6379/0'."
        ) from error
    pool = _pool_of(cache)
    if pool is None:
        raise InvalidLockBackendError(
            f"{where}: CACHES[{location!r}] is {type(cache).__module__}.{type(cache).__name__}, "
            "which is no cache on one Redis: locks need one of django-redis (its default, herd or "
            "sentinel client) or Django's own, or a URL."
        )
    base = str(cache.make_key(PROTOCOL))
    given = {key: v for key, v in pool.connection_kwargs.items() if _is_kept(key) and v is not None}
    names = {each.__name__ for each in pool.connection_class.__mro__}
    kind = "tls" if "SSLConnection" in names else "tcp"
    if "UnixDomainSocketConnection" in names:
        kind = "unix"
    shown = f"CACHES[{location!r}]"
    manager = getattr(pool, "sentinel_manager", None)
    if manager is None:
        return Target(shown, base, given, kind)
    hosts = tuple(
        (
            each.connection_pool.connection_kwargs["host"],
            each.connection_pool.connection_kwargs["port"],
        )
        for each in manager.sentinels
    )
    how = dict(manager.sentinel_kwargs)
    return Target(shown, base, given, kind, (hosts, pool.service_name, how))


def caches_beside(target: Target) -> list[str]:
    """Return the aliases of CACHES in the database of a target, but for one that it alone names.

    An alias other than ``"default"`` that is the LOCATION itself may be there for locks alone.
    """
    if target.nodes:
        return []  # no cache is on a cluster as a whole
    found = []
    for alias in caches.settings:
        if alias != "default" and target.shown == f"CACHES[{alias!r}]":
            continue
        with suppress(InvalidLockBackendError):  # a cache elsewhere
            cache = _of_cache("", alias)
            if (cache.server, cache.database) == (target.server, target.database):
                found.append(alias)
    return found


def _pool_of(cache: Any) -> Any:
    """Return the pool of a cache on one Redis; None for another one."""
    client = getattr(cache, "client", None)
    if client is not None and hasattr(client, "get_client") and not hasattr(client, "get_server"):
        return getattr(client.get_client(write=True), "connection_pool", None)
    own = getattr(cache, "_cache", None)  # Django's
    if own is not None and hasattr(own, "get_client"):
        return getattr(own.get_client(None, write=True), "connection_pool", None)
    return None
