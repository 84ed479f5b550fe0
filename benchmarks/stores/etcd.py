"""etcd: one server that waits for its disk."""

from __future__ import annotations

from typing import Any

from tests.servers.etcd import Etcd

from .base import Store, alias

__all__ = ["OneEtcd"]


class OneEtcd(Store):
    """One member, which writes each change to its disk before it answers."""

    name = "etcd"
    backend = "etcd"
    has_tables = False
    most_leases = 3000  # each waits for the disk when it is taken, and is renewed by itself

    def __init__(self) -> None:
        self.server = Etcd(heartbeat=100, durable=True)

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def settings(self) -> dict[str, Any]:
        """Return the alias, and a database as most projects have."""
        return {
            "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            "DISTLOCKS": {"default": alias("etcd.Etcd", self.server.url)},
        }

    def pids(self) -> list[int]:
        return self.server.pids

    def work(self) -> int:
        """Return how many requests the server has begun; the gateway passes each on by gRPC."""
        return round(self.server.metric("grpc_server_started_total"))

    def writes(self) -> dict[str, int]:
        """Return how often the disk was waited for."""
        return {"syncs": round(self.server.metric("etcd_disk_wal_fsync_duration_seconds_count"))}

    def memory(self) -> int:
        return round(self.server.metric("etcd_mvcc_db_total_size_in_use_in_bytes"))
