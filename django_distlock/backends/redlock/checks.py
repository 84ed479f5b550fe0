"""What `manage.py check --deploy` says of the servers of a quorum, which it asks."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.checks import CheckMessage

from ...core import checking
from ..redis import checks
from ..redis.client import NodeClient
from ..redis.location import Target

__all__ = ["check_deploy"]


def check_deploy(alias: str, targets: Iterable[Target]) -> list[CheckMessage]:
    """Return the messages for production: of each server, and of two that are one."""
    from redis.exceptions import RedisError

    found: list[CheckMessage] = []
    known: dict[str, str] = {}
    for target in targets:
        client = NodeClient(target, checks.LIMIT, 2)
        try:
            found += checks.check_deploy(alias, target, client)
            server = checks.info(client, "server").get("run_id", "")
        except RedisError:
            continue  # told already
        finally:
            client.close()
        if server in known:
            found.append(
                checking.error(
                    f"DISTLOCKS[{alias!r}]: {known[server]} and {target.shown} are one server.",
                    hint="Its failure would cost two votes: name independent servers.",
                    id="distlock.E025",
                )
            )
        elif server:
            known[server] = target.shown
    return found
