"""Consul: one server, that waits for the disk at each write."""

from __future__ import annotations

from typing import Any

from tests.servers.consul import Consul

from .base import Store, alias

__all__ = ["OneConsul"]


class OneConsul(Store):
    """One server that decides alone."""

    name = "consul"
    backend = "consul"
    has_tables = False
    most_leases = 3000  # each waits for the disk when it is taken, and is renewed by itself

    def __init__(self) -> None:
        # Without this it counts for ten seconds only.
        counted = 'telemetry { prometheus_retention_time = "24h" disable_hostname = true }'
        self.server = Consul(least_session=10, options=["-hcl", counted])

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def settings(self) -> dict[str, Any]:
        """Return the alias, and a database as most projects have."""
        return {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            "DISTLOCKS": {"default": alias("consul.Consul", self.server.url)},
        }

    def pids(self) -> list[int]:
        return self.server.pids

    def work(self) -> int:
        """Return how many requests the server has answered, but for those about itself."""
        return self._sum("consul_http_", "_count", but="_agent_")

    def writes(self) -> dict[str, int]:
        """Return the entries of the log that the servers agree on."""
        return {"log entries": self._sum("consul_raft_apply", "")}

    def _sum(self, start: str, end: str, but: str = "\0") -> int:
        total = 0.0
        for line in self.server.text("/v1/agent/metrics?format=prometheus").splitlines():
            name, _, value = line.partition(" ")
            if name.startswith(start) and name.endswith(end) and but not in name:
                total += float(value)
        return int(total)
