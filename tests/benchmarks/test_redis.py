"""The benchmarks run on Redis, and count there what they say they count."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.redis.wire import COMPARE_AND_DELETE, Wire, acquiring, packed, releasing
from benchmarks.processes import in_child, on_one_core
from benchmarks.report import report
from benchmarks.stores.redis import OneRedis
from benchmarks.targets import judge
from tests.benchmarks.test_harness import check_hand_overs, run
from tests.conftest import REDIS

OURS = ["django-distlock", "django-distlock, no scripts"]
BASELINES = {
    "redis": {"bare socket", "bare, redis-py connection", "bare, redis-py client", "bare push/pop"},
    "redlock": {"bare sockets"},
}


def test_client_and_server_share_a_core() -> None:
    """Seen from the process that measures, which is a fork of the one that started the server."""
    store = OneRedis()

    def work(pipe: object) -> tuple[set[int], list[set[int]]]:
        with on_one_core(store.pids()):
            return os.sched_getaffinity(0), [os.sched_getaffinity(pid) for pid in store.pids()]

    store.start()
    try:
        ours, theirs = in_child(work)
    finally:
        store.stop()
    assert len(ours) == 1
    assert theirs == [ours]


@pytest.mark.parametrize(("store", "messages"), [("redis", 2), ("redlock", 10)])
def test_a_quick_run_counts_the_messages_of_a_cycle(
    tmp_path: Path, store: str, messages: int
) -> None:
    """Measure cycles, failing attempts and memory for a moment, on real servers."""
    file = tmp_path / "out.json"
    words = ("--quick", "--rounds", "1", "--kinds", "ours,baseline", "--json", str(file))
    done = run("--stores", store, "--only", "cycles,failing,memory,save", *words)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["results"]
    assert {row["measure"] for row in rows} == {"cycles", "failing", "memory"}
    cycles = {row["adapter"]: row for row in rows if row["measure"] == "cycles"}
    assert {name for name, row in cycles.items() if row["kind"] == "baseline"} == BASELINES[store]
    for name in BASELINES[store]:
        assert cycles[name]["statements"] == messages
    # A node whose vote was not waited for may read its next message along with the one before; one
    # whose clock is off is told of the token besides.
    ours = cycles["django-distlock"]["statements"]
    assert messages * 0.8 <= ours <= messages * 1.2
    if store == "redis":  # without scripts each step is a look and a transaction
        assert cycles["django-distlock, no scripts"]["statements"] >= 2 * messages
    assert all(row["per_second"] > 0 for row in cycles.values())
    (memory,) = (row for row in rows if row["measure"] == "memory")
    assert memory["store_bytes_per_lock"] > 100  # a name, a holder and a token are longer
    assert "messages a cycle" in done.stdout or store == "redlock"


def test_a_quick_run_measures_stores_side_by_side(tmp_path: Path) -> None:
    """Each in its own processes; the results stand in the order that was asked for."""
    file = tmp_path / "out.json"
    words = ("--quick", "--rounds", "1", "--kinds", "baseline", "--json", str(file))
    done = run("--stores", "sqlite,redis,redlock", "--only", "cycles", *words)
    assert done.returncode == 0, done.stderr
    stores = [row["store"] for row in json.loads(file.read_text())["results"]]
    assert list(dict.fromkeys(stores)) == ["sqlite", "redis", "redlock"]


def test_hand_overs_on_redis_are_counted_and_judged(tmp_path: Path) -> None:
    """Let processes wait for each other, by our lock and by the token that is pushed and popped."""
    file = tmp_path / "out.json"
    words = ("--quick", "--kinds", "ours,baseline", "--json", str(file))
    done = run("--stores", "redis", "--only", "handoff,limits,several", *words)
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    limited = [row for row in written["results"] if row["measure"] == "limits"]
    assert [row["adapter"] for row in limited] == [f"{OURS[0]}, limit={n}" for n in (1, 2)]
    check_hand_overs(limited)
    several = [row for row in written["results"] if row["measure"] == "several"]
    measured = {(row["at_once"], row["hold_ms"]) for row in several}
    assert measured == {(1, 2), (1, 20), (4, 2), (4, 20)}
    assert all(row["per_second"] > 0 for row in several)
    ours = [
        row for row in written["results"] if (row["kind"], row["measure"]) == ("ours", "handoff")
    ]
    assert sorted((row["waiters"], row["adapter"]) for row in ours) == [
        (waiters, name) for waiters in (2, 4) for name in OURS
    ]
    check_hand_overs(ours)
    judged = {each["what"] for each in written["targets"]}
    assert "hand-off p50 / bare push/pop, 4 waiters" in judged


def test_a_message_is_counted_once_whatever_the_script_in_it_does() -> None:
    """Count what clients send, not the commands inside of scripts, and what was changed."""
    store = OneRedis()
    store.start()
    try:
        with closing(Wire(store.servers[0].url())) as wire:
            script = packed(b"EVAL", b"for n=1,9 do redis.call('SET',KEYS[1],n) end", b"1", b"key")
            wire.ask(script)
            changes = store.writes()["changes"]
            before, between = store.work(), store.work()
            for _ in range(20):
                wire.ask(script)
            after = store.work()
            assert (after - between) - (between - before) == 20
            assert store.writes()["changes"] - changes == 180
        store.settle()
    finally:
        store.stop()


def test_the_bare_commands_lock() -> None:
    """Refuse a second owner, and free nobody else's."""
    with closing(Wire(REDIS[0].url())) as wire:
        wire.ask(packed(b"SCRIPT", b"LOAD", COMPARE_AND_DELETE))
        assert wire.ask(acquiring(b"bare", b"me")) == b"+OK\r\n"
        assert wire.ask(acquiring(b"bare", b"you")) == b"$-1\r\n"
        assert wire.ask(releasing(b"bare", b"you")) == b":0\r\n"
        assert wire.ask(releasing(b"bare", b"me")) == b":1\r\n"
        with pytest.raises(RuntimeError, match="unknown command"):
            wire.ask(packed(b"NONSENSE"))


def row(measure: str, adapter: str, **figures: Any) -> dict[str, Any]:
    """Return a line of a result on Redis."""
    kinds = {"django-distlock": "ours", "bare push/pop": "baseline"}
    who = {"store": "redis", "adapter": adapter, "kind": kinds.get(adapter, "alternative")}
    return {"measure": measure, **who, **figures}


@pytest.mark.parametrize(("waiters", "reached"), [(2, False), (8, True)])
def test_two_who_wait_are_judged_by_a_limit_of_their_own(waiters: int, reached: bool) -> None:
    """Judge twice the time of push and pop by the number of those who wait."""
    rows = [
        row("handoff", "django-distlock", waiters=waiters, p50_us=200, statements=4.0),
        row("handoff", "bare push/pop", waiters=waiters, p50_us=100, statements=2.0),
    ]
    judged = {verdict.what: verdict.reached for verdict in judge(rows)}
    assert judged[f"hand-off p50 / bare push/pop, {waiters} waiters"] is reached


def test_what_is_not_installed_is_named_among_the_targets() -> None:
    """Say of a library that is absent that nothing was judged beside it, and of no other."""
    ours = {"django-distlock": 1.0, "bare socket": 0.8}
    rows = [
        row("cycles", "django-distlock", times=ours, statements=2.0),
        row("handoff", "django-distlock", waiters=2, p50_us=200, statements=4.0),
    ]
    absent = {"redis": ["redlock-ng", "python-redis-lock"], "sqlite": ["redis-py Lock"]}
    verdicts = judge(rows, absent)
    assert {verdict.what: verdict.reached for verdict in verdicts} == {
        "cycles / redlock-ng": None,
        "cycles / bare socket": True,
        "messages a cycle": True,
        "hand-off p50 / python-redis-lock, 2 waiters": None,
        "messages an acquisition, 2 waiters": True,
    }
    text = report([], verdicts)
    assert "not judged: redlock-ng is not installed" in text
    assert "not judged: python-redis-lock is not installed" in text
    assert "redis-py Lock" not in text


def test_the_targets_of_redis_are_judged() -> None:
    """Judge hand-offs beside the best alternative, and attempts by what idling changes, too."""
    rows = [
        row("handoff", "django-distlock", waiters=8, p50_us=150, p99_us=900, statements=4.1),
        row("handoff", "bare push/pop", waiters=8, p50_us=50, p99_us=90, statements=2.0),
        row("handoff", "python-redis-lock", waiters=8, p50_us=300, p99_us=1000, statements=5.0),
        row("handoff", "tooz", waiters=8, p50_us=90_000, p99_us=99_000, statements=3.0),
        row(
            "failing",
            "django-distlock",
            attempts=100,
            writes={"changes": 14},
            idle={"changes": 12},
        ),
        row("memory", "django-distlock", store_bytes_per_lock=500),
    ]
    judged = {verdict.what: (verdict.got, verdict.reached) for verdict in judge(rows)}
    assert judged == {
        "hand-off p50 / python-redis-lock, 8 waiters": (0.5, True),
        "hand-off p50 / bare push/pop, 8 waiters": (3.0, False),
        "hand-off p99 / best alternative, 8 waiters": (0.9, True),
        "messages an acquisition, 8 waiters": (4.1, True),
        "changes in 100 failing attempts": (2.0, False),
        "bytes of a held lock in the store": (500, False),
    }
