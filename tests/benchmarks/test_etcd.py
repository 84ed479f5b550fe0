"""The benchmarks run on etcd, and count there what they say they count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.stores.etcd import OneEtcd
from benchmarks.targets import judge
from tests.benchmarks.test_harness import check_hand_overs, run
from tests.servers import chosen


class TestEtcd:
    """Not collected unless etcd is chosen."""

    __test__ = "etcd" in chosen()

    def test_a_quick_run_counts_the_requests_of_a_cycle(self, tmp_path: Path) -> None:
        file = tmp_path / "out.json"
        words = ("--quick", "--rounds", "1", "--kinds", "ours,baseline", "--json", str(file))
        done = run("--stores", "etcd", "--only", "cycles,handoff", *words)
        assert done.returncode == 0, done.stderr
        rows = json.loads(file.read_text())["results"]
        cycles = {row["adapter"]: row for row in rows if row["measure"] == "cycles"}
        modes = {"django-distlock, shared", "django-distlock, limit=4"}
        assert set(cycles) == {"django-distlock", "bare http.client", *modes}
        assert cycles["bare http.client"]["statements"] == 2
        assert cycles["django-distlock"]["statements"] <= 2.2  # and now and then a renewal
        handed = [row for row in rows if row["measure"] == "handoff"]
        check_hand_overs(handed)
        assert "requests a cycle" in done.stdout

    def test_a_request_is_counted_once(self) -> None:
        store = OneEtcd()
        store.start()
        try:
            server = store.server
            before, syncs = store.work(), store.writes()["syncs"]
            for _ in range(10):
                server.ask("kv/put", {"key": "YQ==", "value": "YQ=="})
                server.ask("kv/range", {"key": "YQ=="})
            assert store.work() - before == 20
            assert store.writes()["syncs"] - syncs >= 10
            assert store.memory() > 0
        finally:
            store.stop()


def test_the_targets_of_etcd_are_judged() -> None:
    who = {"store": "etcd", "adapter": "django-distlock", "kind": "ours"}
    rows: list[dict[str, Any]] = [
        {**who, "measure": "cycles", "times": {"etcd3gw": 2.6}, "statements": 2.0},
        {**who, "measure": "handoff", "waiters": 8, "p99_us": 21_000, "statements": 4.9},
        {**who, "measure": "handoff", "waiters": 32, "p99_us": 90_000, "statements": 5.1},
        {**who, "measure": "fairness", "most_per_least": 1.0},
    ]
    judged = {verdict.what: (verdict.got, verdict.reached) for verdict in judge(rows)}
    assert judged == {
        "cycles / etcd3gw": (2.6, True),
        "requests a cycle": (2.0, True),
        "hand-off p99 in ms, 8 waiters": (21.0, False),
        "requests an acquisition, 8 waiters": (4.9, True),
        "requests an acquisition, 32 waiters": (5.1, False),
        "most / least grants": (1.0, True),
    }
