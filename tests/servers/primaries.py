"""Clusters whose servers are all written: Galera of MariaDB, and Group Replication of MySQL."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from .base import HOST, ServerError, free_port
from .mariadb import MariaDB
from .mysql import MySQL

__all__ = ["primaries"]

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
GROUP = "3f2b0a52-6f0e-4c57-9d43-0d9a1c1f5f10"  # any UUID
LIMIT = 90.0  # seconds until all have met


class Primary(MariaDB):
    """One server of a cluster, which talks to the others by a port of its own."""

    online: ClassVar[str]
    """Asks how many servers there are."""

    def __init__(self, seeds: list[str], place: int) -> None:
        super().__init__()
        self.seeds = seeds
        self.place = place

    @abstractmethod
    def join(self) -> None:
        """Meet the others; the first one begins the cluster."""

    def command(self) -> list[str]:
        """Return the command line; all settings are on it."""
        return [*super().command(), *self.clustered()]

    @abstractmethod
    def clustered(self) -> list[str]:
        """Return the options of a server of a cluster."""


class GaleraNode(Primary):
    """A MariaDB with Galera, which Debian's package depends on; rsync copies the data at first."""

    start_limit = LIMIT
    online = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS"
    online += " WHERE VARIABLE_NAME = 'wsrep_cluster_size'"

    def join(self) -> None:
        pass  # it has, by its start

    def clustered(self) -> list[str]:
        if not PROVIDER.exists():
            raise ServerError(f"{PROVIDER} not found. Install it: apt-get install galera-4 rsync")
        own = self.seeds[self.place]
        host, port = own.split(":")
        return [
            *(["--wsrep-new-cluster"] if not self.place else []),
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            f"--wsrep-provider-options=gmcast.listen_addr=tcp://{own};"
            f"base_host={host};base_port={port};ist.recv_addr={HOST}:{free_port()}",
            f"--wsrep-cluster-address=gcomm://{','.join(self.seeds)}",
            f"--wsrep-node-address={own}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address={HOST}:{free_port()}",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]


class GroupMember(Primary, MySQL):
    """A MySQL with Group Replication in multi-primary mode."""

    online = "SELECT COUNT(*) FROM performance_schema.replication_group_members"
    online += " WHERE MEMBER_STATE = 'ONLINE'"

    def join(self) -> None:
        self.execute("RESET BINARY LOGS AND GTIDS")  # of the account that each has made by itself
        self.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_USER='{self.user}',"
            f" SOURCE_PASSWORD='{self.password}' FOR CHANNEL 'group_replication_recovery'"
        )
        begins = "SET GLOBAL group_replication_bootstrap_group = "
        first, last = ("", "") if self.place else (f"{begins}ON;", f"; {begins}OFF")
        self.execute(f"{first}START GROUP_REPLICATION{last}", limit=LIMIT)

    def clustered(self) -> list[str]:
        group = {
            "group-name": GROUP,
            "local-address": self.seeds[self.place],
            "group-seeds": ",".join(self.seeds),
            "ip-allowlist": f"{HOST}/32",
            "start-on-boot": "OFF",
            "recovery-get-public-key": "ON",
            "single-primary-mode": "OFF",
            "enforce-update-everywhere-checks": "ON",
        }
        return [
            f"--server-id={self.place + 1}",
            "--log-bin=bin",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            f"--report-host={HOST}",
            "--plugin-load-add=group_replication.so",
            *(f"--loose-group-replication-{key}={value}" for key, value in group.items()),
        ]


@contextmanager
def primaries(store: str, count: int = 2) -> Iterator[list[MariaDB]]:
    """Run a cluster of so many servers."""
    kind: Any = {"mariadb": GaleraNode, "mysql": GroupMember}[store]
    seeds = [f"{HOST}:{free_port()}" for _ in range(count)]
    with ExitStack() as stack:
        nodes: list[MariaDB] = []
        for place in range(count):
            node = kind(seeds, place)
            if nodes:
                node.password = nodes[0].password  # the account is replicated
            stack.enter_context(node)
            stack.callback(node.kill)  # to leave a group takes seconds
            node.join()
            nodes.append(node)
        end = time.monotonic() + LIMIT
        while any(node.execute(kind.online) != str(count) for node in nodes):
            if time.monotonic() > end:
                raise ServerError(f"the {count} servers have not met within {LIMIT:g} s")
            time.sleep(0.2)
        yield nodes
