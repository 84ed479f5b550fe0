"""System checks: every known trap that can be seen without touching a store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import connections

from .backends.base import BaseLockBackend
from .exceptions import InvalidLockBackendError
from .handler import locks

__all__ = ["check_aliases", "check_deploy", "check_transactions"]

_DOCS = "docs/reference/checks.md"


@register("distlock")
def check_aliases(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Open every alias of DISTLOCKS, and ask each backend what it has to say."""
    try:
        aliases = list(locks)
    except InvalidLockBackendError as error:
        return [Error(str(error), hint=f"See {_DOCS}.", id="distlock.E001")]
    found: list[CheckMessage] = []
    for alias in aliases:
        try:
            found += locks[alias].check()
        except InvalidLockBackendError as error:
            found.append(Error(str(error), hint=f"See {_DOCS}.", id="distlock.E001"))
    if "default" not in aliases:
        found.append(
            Warning(
                "DISTLOCKS has no alias 'default', which lock() takes when none is named.",
                hint=f"Add one, or pass using= everywhere. See {_DOCS}.",
                id="distlock.W001",
            )
        )
    return found


@register("distlock")
def check_transactions(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn when views run in transactions and locks are freed before their commit."""
    atomic = [alias for alias, conf in connections.settings.items() if conf["ATOMIC_REQUESTS"]]
    if not atomic:
        return []
    found: list[CheckMessage] = []
    for backend in _opened():
        if backend.conf.in_transaction in ("allow", "warn"):
            found.append(
                Warning(
                    f"DISTLOCKS[{backend.alias!r}] frees locks inside open transactions, and "
                    f"DATABASES {', '.join(map(repr, atomic))} wraps every view in one.",
                    hint="The next holder reads data from before the commit: set IN_TRANSACTION to "
                    f"'hold' or 'error'. See {_DOCS}.",
                    id="distlock.W002",
                )
            )
    return found


@register("distlock", deploy=True)
def check_deploy(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn of backends that exclude nobody else in production."""
    found: list[CheckMessage] = []
    for backend in _opened():
        if backend.scope == "process":
            found.append(
                Warning(
                    f"DISTLOCKS[{backend.alias!r}] is {type(backend).__name__}, which excludes "
                    "nobody outside of its process.",
                    hint=f"Use a backend that all processes see. See {_DOCS}.",
                    id="distlock.W010",
                )
            )
    return found


def _opened() -> list[BaseLockBackend]:
    """Return the backends of the aliases that can be opened; `check_aliases` reports the others."""
    backends = []
    with suppress(InvalidLockBackendError):
        for alias in locks:
            with suppress(InvalidLockBackendError):
                backends.append(locks[alias])
    return backends
