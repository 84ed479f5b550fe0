"""The ZooKeeper of this run, and the alias whose locks it keeps."""

from __future__ import annotations

import os
from typing import Any

from tests.servers import ZooKeeper, chosen

__all__ = ["SERVER", "SESSION", "aliases", "start", "stop"]

SERVER: list[ZooKeeper] = []
"""The server of this process, if zookeeper was chosen."""

SESSION = 3.0
"""The sessions' timeout: long enough for a server that restarts, short enough to be waited for."""

VARIABLE = "DISTLOCK_TEST_ZOOKEEPER"
BACKEND = "django_distlock.backends.zookeeper.ZooKeeperBackend"


def start() -> None:
    """Start the server, and tell the processes that the tests start where it is."""
    os.environ.pop(VARIABLE, None)
    if "zookeeper" in chosen():
        SERVER.append(ZooKeeper().start())
        os.environ[VARIABLE] = SERVER[0].address


def stop() -> None:
    """End the server."""
    for server in SERVER:
        server.stop()
    SERVER.clear()


def aliases() -> dict[str, dict[str, Any]]:
    """Return the alias."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return {}
    options = {"SESSION_TIMEOUT": SESSION}
    return {"zookeeper": {"BACKEND": BACKEND, "LOCATION": address, "OPTIONS": options}}
