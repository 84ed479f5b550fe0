"""What `manage.py check` says of a Consul alias, without asking Consul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.checks import CheckMessage

from ...conf import AliasConf
from ...core import checking

__all__ = ["check"]


def check(alias: str, conf: AliasConf, opts: Mapping[str, Any], delay: float) -> list[CheckMessage]:
    """Return the messages."""
    named = [key for key in ("NODE_CHECKS", "SERVICE_CHECKS") if opts.get(key)]
    if not named or delay >= conf.ttl:
        return []
    return [
        checking.warning(
            f"DISTLOCKS[{alias!r}]: a session ends with its {named[0]}, but LOCK_DELAY "
            f"({delay:g} s) is shorter than TTL ({conf.ttl:g} s).",
            hint="The next holder may be granted the lock while the one before still counts on "
            "it: make LOCK_DELAY as long as the TTL, up to 60.",
            id="distlock.W018",
        )
    ]
