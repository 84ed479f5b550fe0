"""The ZooKeeper of this run, a cluster of three, and the aliases whose locks they keep."""

from __future__ import annotations

import os
import random
from typing import Any

from tests import clusters
from tests.servers import ZooKeeper, ZooKeeperCluster, chosen

__all__ = ["CLUSTER", "SERVER", "SESSION", "aliases", "cluster", "start", "stop"]

SERVER: list[ZooKeeper] = []
"""The server of this process, if zookeeper was chosen."""

CLUSTER: list[ZooKeeperCluster] = []
"""The cluster of this process, whose ports are known; it is started by the first test that uses it.
"""

SESSION = 8.0
"""The sessions' timeout: half of it, for which a lease is sure, is longer than the tests have
servers hang; short enough to be waited for."""

VARIABLE = "DISTLOCK_TEST_ZOOKEEPER"
CLUSTERED = "DISTLOCK_TEST_ZOOKEEPER_CLUSTER"
BACKEND = "django_distlock.backends.zookeeper.ZooKeeperBackend"


def start() -> None:
    """Start the server, and tell the processes that the tests start where it is."""
    for variable in (VARIABLE, CLUSTERED):
        os.environ.pop(variable, None)
    if "zookeeper" in chosen():
        _draw_apart()
        SERVER.append(ZooKeeper().start())
        CLUSTER.append(ZooKeeperCluster())
        os.environ[VARIABLE] = SERVER[0].address
        os.environ[CLUSTERED] = CLUSTER[0].address


def _draw_apart() -> None:
    """Give kazoo's threads random numbers of their own: Hypothesis watches those of the module."""
    import kazoo.protocol.connection
    import kazoo.retry

    for module in (kazoo.protocol.connection, kazoo.retry):
        module.random = random.Random()


def stop() -> None:
    """End the servers."""
    for server in SERVER:
        server.stop()
    for servers in CLUSTER:
        servers.stop()
    SERVER.clear()
    CLUSTER.clear()


def cluster() -> ZooKeeperCluster:
    """Return the cluster, with all its servers serving."""
    (servers,) = CLUSTER
    for member in servers.members:
        member.resume()
        member.start()
    servers.wait()
    clusters.show("zookeeper-cluster")
    return servers


def aliases() -> dict[str, dict[str, Any]]:
    """Return the aliases."""
    found = {}
    for alias, variable in (("zookeeper", VARIABLE), ("zookeeper-cluster", CLUSTERED)):
        if address := os.environ.get(variable, ""):
            options = {"SESSION_TIMEOUT": SESSION}
            found[alias] = {"BACKEND": BACKEND, "LOCATION": address, "OPTIONS": options}
    return found
