"""The etcd of this run, the cluster of the tests that ask for one, and their aliases."""

from __future__ import annotations

import json
import os
from typing import Any

from tests import clusters
from tests.servers import Etcd, EtcdCluster, NewerEtcd, chosen
from tests.servers.base import HOST

__all__ = [
    "NODE",
    "aliases",
    "cluster_stopped",
    "running_cluster",
    "running_newer",
    "start",
    "stop",
]

NODE: list[Etcd] = []
"""The server of this process, if etcd was chosen."""
CLUSTER: list[EtcdCluster] = []
NEWER: list[Etcd] = []

VARIABLE = "DISTLOCK_TEST_ETCD"
BACKEND = "django_distlock.backends.etcd.EtcdBackend"


def start() -> None:
    """Start the server, and tell the processes that the tests start where it is."""
    os.environ.pop(VARIABLE, None)
    if "etcd" in chosen():
        NODE.append(Etcd().start())
        nowhere = [f"http://{HOST}:{port}" for port in (1, 2, 3)]
        told: dict[str, Any] = {"etcd": NODE[0].url, "etcd-cluster": nowhere}
        if NewerEtcd.installed():
            told["etcd-newer"] = nowhere[0]
        os.environ[VARIABLE] = json.dumps(told)


def stop() -> None:
    """End the servers."""
    cluster_stopped()
    for node in (*NODE, *NEWER):
        node.stop()
    NODE.clear()
    NEWER.clear()


def running_cluster() -> EtcdCluster:
    """Return the cluster with all its members running; it is started when it is first asked for."""
    if CLUSTER:
        CLUSTER[0].bring_up()
    else:
        CLUSTER.append(EtcdCluster().start())
        told = json.loads(os.environ[VARIABLE]) | {"etcd-cluster": CLUSTER[0].urls}
        os.environ[VARIABLE] = json.dumps(told)
        clusters.show("etcd-cluster", LOCATION=CLUSTER[0].urls)
    return CLUSTER[0]


def running_newer() -> Etcd:
    """Return the node of a newer version; it is started when it is first asked for."""
    if not NEWER:
        NEWER.append(NewerEtcd().start())
        told = json.loads(os.environ[VARIABLE]) | {"etcd-newer": NEWER[0].url}
        os.environ[VARIABLE] = json.dumps(told)
        clusters.show("etcd-newer", LOCATION=NEWER[0].url)
    return NEWER[0]


def cluster_stopped() -> None:
    """End the cluster."""
    for cluster in CLUSTER:
        cluster.stop()
    CLUSTER.clear()


def aliases() -> dict[str, dict[str, Any]]:
    """Return the aliases of the servers that run."""
    told = json.loads(os.environ.get(VARIABLE, "{}"))
    entries = {name: {"BACKEND": BACKEND, "LOCATION": urls} for name, urls in told.items()}
    if "etcd-cluster" in entries:
        entries["etcd-cluster"]["OPTIONS"] = {
            "COMMAND_TIMEOUT": 25
        }  # it may have to elect a leader
    return entries
