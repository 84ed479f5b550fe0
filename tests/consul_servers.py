"""The Consul server of this run, and the aliases whose locks it keeps."""

from __future__ import annotations

import json
import os
from typing import Any

from tests import clusters
from tests.servers import Consul, ConsulCluster, chosen
from tests.servers.base import HOST, free_port

__all__ = ["CONSUL", "aliases", "cluster", "settings_of", "start", "stop"]

CONSUL: list[Consul] = []
"""The server of this process, if consul was chosen and is there."""

VARIABLE = "DISTLOCK_TEST_CONSUL_URLS"

_cluster: list[ConsulCluster] = []


def start() -> None:
    """Start the server, and tell the processes that the tests start where it is."""
    os.environ.pop(VARIABLE, None)
    if "consul" in chosen():
        CONSUL.append(Consul().start())
        # The cluster is started by those who use it, but its aliases are needed before.
        ports = [free_port() for _ in range(3)]
        urls = [CONSUL[0].url, *(f"http://{HOST}:{port}" for port in ports)]
        os.environ[VARIABLE] = json.dumps(urls)


def cluster() -> ConsulCluster:
    """Return the cluster of this process, started when it is first asked for.

    One process of a run has all its tests, see `grouping`.
    """
    if not _cluster:
        ports = [int(url.rpartition(":")[2]) for url in _urls()[1:]]
        _cluster.append(ConsulCluster(ports).start())
        clusters.show("consul-cluster")
    return _cluster[0]


def stop() -> None:
    """End the servers."""
    for server in CONSUL:
        server.stop()
    for each in _cluster:
        each.stop()
    CONSUL.clear()
    _cluster.clear()


def _urls() -> list[str]:
    return list(json.loads(os.environ.get(VARIABLE, "[]")))


def settings_of(location: Any, **options: Any) -> dict[str, Any]:
    """Return an alias for servers of the tests, where sessions and lock-delays are short."""
    return {
        "BACKEND": "django_distlock.backends.consul.ConsulBackend",
        "LOCATION": location,
        "OPTIONS": {"SESSION_TTL_MIN": 1, "LOCK_DELAY": 0, **options},
    }


def aliases() -> dict[str, dict[str, Any]]:
    """Return the aliases: keys that are deleted, keys that stay, and those of the cluster."""
    if not _urls():
        return {}
    url, *urls = _urls()
    kept = settings_of(url, BEHAVIOR="release") | {"PREFIX": "kept"}
    return {"consul": settings_of(url), "kept-consul": kept, "consul-cluster": settings_of(urls)}
