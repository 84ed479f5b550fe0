"""What `manage.py check` says of a Consul alias, without asking Consul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.checks import CheckMessage, Warning

from ...conf import AliasConf

__all__ = ["check"]

_DOCS = "docs/reference/checks.md"


def check(alias: str, conf: AliasConf, opts: Mapping[str, Any], delay: float) -> list[CheckMessage]:
    """Return the messages."""
    named = [key for key in ("NODE_CHECKS", "SERVICE_CHECKS") if opts.get(key)]
    if not named or delay >= conf.ttl:
        return []
    return [
        Warning(
            f"DISTLOCKS[{alias!r}]: a session ends with its {named[0]}, but LOCK_DELAY "
            f"({delay:g} s) is shorter than TTL ({conf.ttl:g} s).",
            hint="The next holder may be granted the lock while the one before still counts on "
            f"it: make LOCK_DELAY as long as the TTL, up to 60. See {_DOCS}.",
            id="distlock.W018",
        )
    ]
