"""The aliases of clusters: known while tests are collected, and then from their start on.

Among them the etcd of a newer version and MySQL, for the same reason: each is started by the one
process that runs its tests (see `grouping`). To all others, and to the processes that they start,
its alias would be a store that is down.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

__all__ = ["CLUSTERS", "VARIABLE", "hide", "is_hidden", "show"]

CLUSTERS = (
    *("consul-cluster", "etcd-cluster", "etcd-newer", "zookeeper-cluster"),
    *("mysql", "portable-mysql", "row-mysql", "version-mysql", "advisory-mysql"),
)
VARIABLE = "DISTLOCK_TEST_CLUSTERS"
"""Names the aliases that there are, for the processes that are started."""

_hidden: dict[str, dict[str, Any]] = {}


def is_hidden(alias: str) -> bool:
    """Tell whether an alias is that of a cluster that does not run."""
    return alias in CLUSTERS and alias not in os.environ.get(VARIABLE, "").split()


def hide() -> None:
    """Take the aliases away."""
    from django.conf import settings

    from django_distlock import locks

    for alias in CLUSTERS:
        if alias in settings.DISTLOCKS:
            with suppress(KeyError):
                del locks[alias]
            _hidden[alias] = settings.DISTLOCKS.pop(alias)
    os.environ[VARIABLE] = ""


def show(alias: str, **conf: Any) -> None:
    """Have the alias of a cluster that was started, with these keys of its own."""
    from django.conf import settings

    if alias in _hidden:
        settings.DISTLOCKS[alias] = _hidden.pop(alias) | conf
        os.environ[VARIABLE] = f"{os.environ[VARIABLE]} {alias}".strip()
