"""etcd under clients that are killed and servers that fail: the history is judged."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings

from django_distlock import locks
from tests.etcd_servers import VARIABLE
from tests.faults.proof.nemesis import of_proxy, of_server
from tests.faults.shares import SHARE
from tests.faults.test_proof import TTL, backend_of, prove
from tests.proxy import Proxy
from tests.servers import Etcd, EtcdCluster

pytestmark = pytest.mark.timeout(SHARE + 240)


@pytest.fixture(autouse=True)
def _closed() -> None:
    """Close the aliases that the backends of these tests take the entry of."""
    for alias in ("etcd", "etcd-cluster"):
        with suppress(KeyError):
            del locks[alias]


def test_on_one_server(server: Etcd, tmp_path: Path) -> None:
    with Proxy(server.port) as proxy, backend_of("etcd", settings.DISTLOCKS["etcd"]) as backend:
        faults = [*of_server(server, TTL), *of_proxy(proxy, TTL)]
        through = json.dumps({"etcd": f"http://127.0.0.1:{proxy.port}"})
        prove("etcd", backend, tmp_path, faults, **{VARIABLE: through})


def test_on_a_cluster(cluster: EtcdCluster, tmp_path: Path) -> None:
    """Its leader is stopped and killed; the others go on."""
    alias = "etcd-cluster"
    conf = settings.DISTLOCKS[alias] | {"LOCATION": cluster.urls}
    with backend_of(alias, conf) as backend:
        prove(alias, backend, tmp_path, of_server(cluster.leader, TTL))
