"""What `manage.py check --deploy` says of a Redis, which it asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.checks import CheckMessage

from ...core import checking
from .client import RedisClient
from .location import Target, caches_beside

__all__ = ["LIMIT", "check_deploy", "check_ignored", "info"]

LIMIT = 2.0  # seconds that a check waits for the server


def check_ignored(alias: str, targets: Iterable[Target]) -> list[CheckMessage]:
    """Return a warning for arguments of URLs that mean nothing to locks."""
    return [
        checking.warning(
            f"DISTLOCKS[{alias!r}]: {target.shown} has arguments that locks do not heed: "
            f"{', '.join(target.ignored)}.",
            hint="Leave them out. How long a command may take is COMMAND_TIMEOUT in OPTIONS; how "
            "many connections there may be, MAX_CONNECTIONS.",
            id="distlock.W015",
        )
        for target in targets
        if target.ignored
    ]


def check_deploy(alias: str, target: Target, client: RedisClient) -> list[CheckMessage]:
    """Return the messages for production."""
    from redis.exceptions import RedisError

    where = f"DISTLOCKS[{alias!r}]: {target.shown}"
    found = _beside_caches(alias, target)
    try:
        for node in client.nodes(LIMIT):
            where = f"DISTLOCKS[{alias!r}]: {node.target.shown}"
            found += _judged(where, {**info(node, "memory"), **info(node, "replication")})
    except RedisError as error:
        found.append(
            checking.warning(
                f"{where} could not be asked how it is set up: {error}.",
                hint="Run the check where it can be reached, as a user that may run INFO.",
                id="distlock.W013",
            )
        )
    return found


def _beside_caches(alias: str, target: Target) -> list[CheckMessage]:
    """Return a warning when a cache is in the database of the locks."""
    names = caches_beside(target)
    if not names:
        return []
    return [
        checking.warning(
            f"DISTLOCKS[{alias!r}]: {target.shown} has its locks in the database of the cache "
            f"{', '.join(map(repr, names))}, whose clear() deletes them all.",
            hint="Give the locks a database of their own, by a URL or another alias of CACHES; "
            "silence this if no program clears that cache.",
            id="distlock.W014",
        )
    ]


def _judged(where: str, facts: Mapping[str, str]) -> list[CheckMessage]:
    """Return what is wrong with how one server is set up."""
    found: list[CheckMessage] = []
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and facts.get("maxmemory", "0") != "0":
        found.append(
            checking.warning(
                f"{where} evicts keys when its memory is full (maxmemory-policy {policy}).",
                hint="A lock that is evicted is free while its holder works: give locks a server "
                "with the policy noeviction.",
                id="distlock.W012",
            )
        )
    if facts.get("role") == "slave":
        found.append(
            checking.error(
                f"{where} is a replica, which cannot be written.",
                hint="Name the master, or SENTINELS that know it.",
                id="distlock.E024",
            )
        )
    return found


def info(client: RedisClient, section: str) -> dict[str, str]:
    """Return what a server says of itself, by its own names."""
    answer: Any = client.ask(("INFO", section), LIMIT)
    lines = answer.decode("utf-8", "replace").splitlines()
    return {key: value for key, _, value in (line.partition(":") for line in lines) if value}
