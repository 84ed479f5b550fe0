"""ZooKeeper: one server, as in production but for its number."""

from __future__ import annotations

import time
from typing import Any

from tests.servers.zookeeper import ZooKeeper

from .base import Store, alias

__all__ = ["OneZooKeeper"]


class OneZooKeeper(Store):
    """One server that waits for the disk at each write."""

    name = "zookeeper"
    backend = "zookeeper"
    has_tables = False
    most_leases = 3000  # each waits for the disk when it is taken, and is renewed by itself

    def __init__(self) -> None:
        words = ["-Dzookeeper.forceSync=yes", "-XX:TieredStopAtLevel=4", "-Xmx512m"]
        self.server = ZooKeeper(options=words)

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def settings(self) -> dict[str, Any]:
        """Return the alias, and a database as most projects have one."""
        return {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            "DISTLOCKS": {"default": alias("zookeeper.ZooKeeper", self.server.address)},
        }

    def pids(self) -> list[int]:
        return self.server.pids

    def settle(self, left: int = 0) -> None:
        """Wait until the sessions of the clients have ended."""
        end = time.monotonic() + 20
        while not left and self.server.count("zk_global_sessions"):
            if time.monotonic() > end:
                raise RuntimeError("Clients are left over in ZooKeeper")
            time.sleep(0.02)

    def work(self) -> int:
        """Return how many packets the server has read."""
        return self.server.count("zk_packets_received")

    def writes(self) -> dict[str, int]:
        """Return the changes: each is a write to the disk, or shares one."""
        for line in self.server.ask("srvr").splitlines():
            if line.startswith("Zxid: "):
                return {"changes": int(line.partition(" ")[2], 16)}
        raise RuntimeError("The server does not tell its zxid")
