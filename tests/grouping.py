"""Which tests run in one process, as they share what is dear: a cluster, a browser, workers.

pytest-xdist has marks for that (``--dist loadgroup``), but its release 3.8 writes them where pytest
9.2 does not look any more. So the groups are told by where the tests stand.
"""

from __future__ import annotations

import re

from tests.servers import databases

__all__ = ["GROUPS", "group_of", "is_of_mysql", "parameters_of"]

GROUPS = {
    "tests/browser/": "browser",
    "tests/celery/test_once.py": "celery workers",
    "tests/celery/test_pools.py": "celery workers",
    "tests/celery/test_run_time.py": "celery workers",
    "tests/integration/test_every_alias.py": "every alias",
    "tests/consul/test_cluster_faults.py": "consul cluster",
    "tests/contract/test_consul_cluster.py": "consul cluster",
    "tests/contract/test_etcd_cluster.py": "etcd cluster",
    "tests/contract/test_etcd_newer.py": "newer etcd",
    "tests/contract/test_mysql.py": "mysql",
    "tests/faults/test_proof.py::test_in_mysql": "mysql",
    "tests/docs/test_site.py": "site",
    "tests/etcd/test_access.py": "etcd cluster",
    "tests/etcd/test_cluster.py": "etcd cluster",
    "tests/etcd/test_proof.py": "etcd cluster",
    "tests/servers/test_etcd.py": "etcd cluster",
    "tests/contract/test_zookeeper.py::TestZooKeeperCluster": "zookeeper cluster",
    "tests/zookeeper/test_cluster.py": "zookeeper cluster",
}
"""What the names of tests begin with, and their group."""

BY_STORE = (
    "tests/backends/test_server_limits.py",
    "tests/faults/test_clock.py",
    "tests/integration/test_demo.py",
    "tests/integration/test_demo_fencing.py",
)
"""Files whose tests of one database share what was made for it."""


def is_of_mysql(nodeid: str) -> bool:
    """Tell whether a test is one of those of a store that is MySQL's."""
    return "mysql" in parameters_of(nodeid)


def parameters_of(nodeid: str) -> list[str]:
    """Return the words of a test's parameters."""
    return re.split("[- ]", nodeid.partition("[")[2].rstrip("]"))


def group_of(nodeid: str) -> str:
    """Return the group of a test; one that belongs to none is a group of its own."""
    file, _, test = nodeid.partition("::")
    store = test.partition("[")[2].partition("-")[0].rstrip("]")
    for start, group in GROUPS.items():
        if nodeid.startswith(start):
            return group
    if is_of_mysql(nodeid):
        return "mysql, beside the contract"
    return f"{file} {store}" if file in BY_STORE and store in databases() else nodeid
