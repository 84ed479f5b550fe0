"""Two tiers of tests: what `make test` runs, and what only `make test-all` does.

The short tier has every behaviour once, on every store and in both modes. The long tier has the
cross product, and what takes long by its nature. A variant of a store has each test of the contract
in one of the modes there, as its store has had both; `--tier all` has all that there is.
"""

from __future__ import annotations

import re
import zlib

from tests.grouping import is_of_mysql, parameters_of

__all__ = ["TIERS", "VARIANTS", "in_tier", "is_long", "is_of_the_other_mode", "lacks"]

TIERS = ("short", "long", "all")

VARIANTS = (
    "tests/contract/test_consul.py::TestKeptConsul",
    "tests/contract/test_consul_cluster.py",
    "tests/contract/test_contract.py::TestAdvisoryOnMariaDB",
    "tests/contract/test_contract.py::TestCachedRedis",
    "tests/contract/test_contract.py::TestPortableOnMariaDB",
    "tests/contract/test_contract.py::TestPortableOnPostgreSQL",
    "tests/contract/test_contract.py::TestSQLiteInMemory",
    "tests/contract/test_contract.py::TestScriptlessRedis",
    "tests/contract/test_contract.py::TestVersionOnMariaDB",
    "tests/contract/test_contract.py::TestVersionOnPostgreSQL",
    "tests/contract/test_etcd_cluster.py",
    "tests/contract/test_etcd_newer.py",
    "tests/contract/test_flags.py::TestHiding",
    "tests/contract/test_isolation.py",
    "tests/contract/test_late.py",
    "tests/contract/test_mysql.py::TestAdvisory",
    "tests/contract/test_mysql.py::TestPortable",
    "tests/contract/test_mysql.py::TestRow",
    "tests/contract/test_mysql.py::TestVersion",
    "tests/contract/test_redlock.py::TestRedlockOfThree",
    "tests/contract/test_zookeeper.py::TestZooKeeperCluster",
)
"""The contract again where one part of a store differs, or of the machine."""

LONG = (
    *VARIANTS,
    "tests/contract/test_mysql.py",
    "tests/docs/test_write_a_backend.py::test_the_backend_by_get_lock_keeps_the_contract",
    "tests/backends/test_isolation.py",
    "tests/backends/test_transaction_modes.py",
    # Servers that are killed, stopped, restarted or cut off; clusters.
    "tests/backends/test_advisory_outages.py",
    "tests/backends/test_failover.py",
    "tests/backends/test_lock_rows_outages.py",
    "tests/backends/test_multi_primary.py",
    "tests/backends/test_outages.py",
    "tests/backends/test_restarts.py",
    "tests/backends/test_queue_faults.py",
    "tests/backends/test_row_outages.py",
    "tests/backends/test_version_outages.py",
    "tests/consul/test_cluster_faults.py",
    "tests/consul/test_faults.py",
    "tests/etcd/test_cluster.py",
    "tests/etcd/test_faults.py",
    "tests/faults/",
    "tests/redis/test_cluster.py",
    "tests/redis/test_fault_ways.py",
    "tests/zookeeper/test_cluster.py",
    "tests/zookeeper/test_sessions.py",
    # What searches many orders of events, and what has very many waiters or locks.
    "tests/backends/test_advisory.py::test_five_thousand_locks_take_one_connection",
    "tests/model/test_engine.py::test_nothing_is_wrong[3-0]",
    "tests/model/test_handoff.py::test_nothing_is_wrong[ssx]",
    "tests/model/test_handoff.py::test_nothing_is_wrong[xxx]",
    "tests/redis/test_redlock.py::TestOnServers",
    "tests/unit/test_redlock_algorithm.py::test_one_holds_and_its_token_is_the_greatest",
    "tests/unit/test_threads.py::test_a_worker_survives_interruptions",
    "tests/zookeeper/test_queues.py::test_a_release_wakes_exactly_one_of_a_thousand",
    # Storms and histories.
    "tests/backends/test_conflicts.py",
    "tests/backends/test_storm.py",
    "tests/etcd/test_proof.py",
    "tests/fencing/test_races.py",
    "tests/redis/test_redlock_storm.py",
    "tests/redis/test_storm.py",
    "tests/versions/test_races.py",
    # Whole programs, and many processes.
    "tests/admin/test_page.py",
    "tests/backends/test_durable.py",
    "tests/backends/test_fork.py",
    "tests/browser/",
    "tests/celery/test_beat.py",
    "tests/celery/test_brokers.py",
    "tests/celery/test_faults.py",
    "tests/celery/test_once.py",
    "tests/celery/test_pools.py",
    "tests/celery/test_run_time.py",
    "tests/commands/test_runlocked",
    "tests/consul/test_demo.py",
    "tests/etcd/test_demo.py",
    "tests/examples/",
    "tests/integration/",
    "tests/redis/test_demo.py",
    "tests/zookeeper/test_programs.py",
    # Tests of what is not the package.
    "tests/benchmarks/",
    "tests/docs/",
    "tests/servers/",
    "tests/unit/test_typing.py",
)
"""What the ids of long tests begin with."""


AT_EVERY_MOMENT = "::test_an_interruption_at_every_moment["
"""A test of the contract that interrupts hundreds of blocks; others interrupt at random ones."""
IN_PROCESSES = re.compile(r"_(killed|(?<!of_this_)process|processes)[_\[]")
"""Tests of the contract that start processes, which is what takes their time."""
UNIT = "tests/unit/test_"
"""Tests without a store; only those that are named above are long."""
COMMANDS = ("tests/backends/test_cleanlocks.py", "tests/commands/")
"""Tests of commands, which ask the backends and no database."""


def is_long(nodeid: str) -> bool:
    """Tell whether a test is in the long tier.

    MySQL has what MariaDB has in the short tier. There other processes are started in one mode,
    and commands run on one database: the other mode and the other databases are in the long one.
    """
    words = parameters_of(nodeid)
    again = nodeid.startswith(COMMANDS) and not {"postgresql", "mariadb"}.isdisjoint(words)
    if nodeid.startswith("tests/contract/") and IN_PROCESSES.search(nodeid):
        again = words == ["async"]
    again = again or AT_EVERY_MOMENT in nodeid or is_of_mysql(nodeid)
    again = again and not nodeid.startswith(UNIT)
    return again or nodeid.startswith(LONG)


def lacks(path: str, tier: str) -> bool:
    """Tell whether a file, or a folder with its last slash, is known to have no test of a tier."""
    if tier == "long":
        return path.startswith(UNIT) and not any(entry.startswith(path) for entry in LONG)
    return tier == "short" and path.startswith(LONG)


def is_of_the_other_mode(nodeid: str) -> bool:
    """Tell whether a test of a variant is one that the long tier has in the other mode.

    The names of the variant and of the test decide: of a variant each mode has about half, of a
    test too.
    """
    if not nodeid.startswith(VARIANTS):
        return False
    words = nodeid.partition("[")[0].encode()
    return ("sync", "async")[zlib.crc32(words) % 2] in parameters_of(nodeid)


def in_tier(nodeid: str, tier: str) -> bool:
    """Tell whether a test is in a tier of `TIERS`."""
    if tier == "long":
        return is_long(nodeid) and not is_of_the_other_mode(nodeid)
    return tier == "all" or not is_long(nodeid)
