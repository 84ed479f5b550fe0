"""Which proofs and storms there are, and how the minutes of `make soak` are shared among them.

``DISTLOCK_PROOF_MINUTES`` are shared out among all alike, and pytest-xdist's processes, which run
that many of them at a time, have so much more to share out. Without any minutes a proof lasts until
each kind of harm has happened once, and a storm for a few seconds.
"""

from __future__ import annotations

import os

from tests.servers import DATABASES, chosen, databases

SEVERAL = [store for store in databases() if store != "mysql"]
"""The databases that each process of a run has; MySQL has histories of its own."""

SQL = [
    (technique, store)
    for technique in ("", "version-", "row-", "advisory-", "portable-")
    for store in SEVERAL
    if store in DATABASES or technique not in ("row-", "advisory-")
]
"""Each technique and database."""

IN_MYSQL = ["", "version-", "row-", "advisory-"] if "mysql" in chosen() else []
IN_REDIS = ["redis", "scriptless-redis"] if "redis" in chosen() else []
IN_QUORUM = ["redlock"] if "redis" in chosen() else []
IN_CONSUL = ["consul"] if "consul" in chosen() else []
IN_ZOOKEEPER = ["zookeeper"] if "zookeeper" in chosen() else []
IN_ETCD = ["etcd", "etcd-cluster"] if "etcd" in chosen() else []

LONG = float(os.environ.get("DISTLOCK_PROOF_MINUTES", "0")) > 0
"""Whether all of the histories of machines are there, or one of each kind."""
ROOT = os.geteuid() == 0
"""Only root makes networks."""
SERVED = [store for store in SEVERAL if store in DATABASES]
CLOCKS = [(store, way) for store in SERVED for way in (("back", "both") if LONG else ("back",))]
"""Databases whose clocks are turned, and which way."""
DISKS = SERVED
FORGETFUL = IN_REDIS if LONG else IN_REDIS[:1]
LINKS = [*(SERVED if LONG else []), *IN_REDIS[:1]] if ROOT else []
MACHINES = [*CLOCKS, *DISKS, *FORGETFUL, *LINKS]

PROOFS = [*SQL, *IN_MYSQL, *IN_REDIS, *IN_QUORUM, *IN_CONSUL, *IN_ZOOKEEPER, *IN_ETCD, *MACHINES]

SQL_STORMS = [(path, store) for path in ("", "portable-") for store in SEVERAL]
QUORUM_STORMS = ["redlock-3", "redlock"] if "redis" in chosen() else []
ETCD_STORMS = ["etcd"] if "etcd" in chosen() else []
STORMS = [*SQL_STORMS, *IN_REDIS, *QUORUM_STORMS, *ETCD_STORMS]

MINUTES = float(os.environ.get("DISTLOCK_PROOF_MINUTES", "0"))
AT_ONCE = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
SHARE = MINUTES * 60 * AT_ONCE / max(1, len(PROOFS) + len(STORMS))
"""Seconds for each of them; 0 without any minutes."""
