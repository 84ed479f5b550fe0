"""`manage.py demo`, run as a user runs it: real processes, real kills, real databases."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from testproject.settings import SQLITE
from tests.docs.pages import ROOT
from tests.integration import new_database
from tests.integration.shops import MORE, Shop
from tests.servers import databases

RUN_KEYS = ["technique", "alias", "orders", "oversold", "lost", "orders_per_s", "handover_ms"]
RUN_KEYS += ["worst_wait_ms"]
SMALL = ("--workers", "4", "--stock", "30", "--think", "4")


@dataclass
class Outcome:
    """A demo that has run on a shop with data in it."""

    before: dict[str, Any]
    done: subprocess.CompletedProcess[str]
    after: dict[str, Any]
    store: str

    @property
    def techniques(self) -> list[tuple[str, str]]:
        """What the database can do, and the alias of it."""
        found = [
            ("table", "default"),
            ("version", "version"),
            ("row", "row"),
            ("advisory", "advisory"),
        ]
        return found[:2] if self.store == "sqlite" else found

    @cached_property
    def figures(self) -> dict[str, Any]:
        """What it printed."""
        found: dict[str, Any] = json.loads(self.done.stdout)
        return found


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Return a shop on SQLite, with the settings that the shop has by default."""
    path = tmp_path_factory.mktemp("demo") / "shop.sqlite3"
    return Shop(SQLITE | {"NAME": str(path)}).migrated()


@pytest.fixture(scope="module", params=databases()[:2])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """Run the demo on SQLite and on a server."""
    if request.param == "sqlite":
        shop: Shop = request.getfixturevalue("sqlite")
    else:
        shop = Shop(new_database(request.param, "demo")).migrated()
    demo = shop.manage
    return Outcome(shop.state(), demo("demo", "--json", *SMALL), shop.state(), request.param)


def test_a_sound_lock_ends_with_0_and_prints_only_json(outcome: Outcome) -> None:
    assert outcome.done.returncode == 0, outcome.done.stderr
    assert set(outcome.figures) == {"runs", "limits", "kills"}


def test_every_run_has_the_same_keys(outcome: Outcome) -> None:
    for run in outcome.figures["runs"]:
        assert list(run) == RUN_KEYS
        assert set(run["handover_ms"]) == {"median", "p99"}


def test_the_first_run_is_without_a_lock(outcome: Outcome) -> None:
    run = outcome.figures["runs"][0]
    assert (run["technique"], run["alias"]) == ("none", None)
    assert run["oversold"] == run["orders"] - 30
    assert run["oversold"] > 0  # four workers that think for 4 ms: it would need a miracle not to
    assert run["handover_ms"] == {"median": None, "p99": None}
    assert run["worst_wait_ms"] is None


def test_nothing_is_oversold_or_lost_under_the_lock(outcome: Outcome) -> None:
    runs = outcome.figures["runs"][1:]
    assert [(run["technique"], run["alias"]) for run in runs] == outcome.techniques
    for run in runs:
        assert (run["orders"], run["oversold"], run["lost"]) == (30, 0, 0)


def test_the_figures_of_the_lock_are_measured(outcome: Outcome) -> None:
    for run in outcome.figures["runs"][1:]:
        assert 0 < run["handover_ms"]["median"] <= run["handover_ms"]["p99"]
        assert run["handover_ms"]["p99"] <= run["worst_wait_ms"]
        assert 0 < run["orders_per_s"] <= 250  # one after the other, each thinking for 4 ms


def test_several_work_at_once_under_a_limit(outcome: Outcome) -> None:
    limits = outcome.figures["limits"]
    assert [limit["alias"] for limit in limits] == ["default", "version"]
    for limit in limits:
        assert (limit["calls"], limit["clashes"]) == (40, 0)
        assert 1 < limit["most"] <= 3
        assert {0, 1} <= set(limit["slots"]) <= {0, 1, 2}


def test_the_others_get_the_lock_of_a_killed_worker(outcome: Outcome) -> None:
    kills = outcome.figures["kills"]
    assert [kill["alias"] for kill in kills] == [alias for _, alias in outcome.techniques]
    for kill in kills:
        assert kill["waiters"] == kill["served"] == 3
        assert (kill["early"], kill["oversold"], kill["lost"]) == (0, 0, 0)
        assert kill["first_grant_ms"] <= kill["ttl_ms"] + 1500
        assert kill["last_grant_ms"] >= kill["first_grant_ms"]


def test_the_developers_data_stay(outcome: Outcome) -> None:
    assert any(row["fields"].get("name") == "Lamp" for row in outcome.before["rows"])
    assert outcome.after["rows"] == outcome.before["rows"]


def test_no_lock_stays_held(outcome: Outcome) -> None:
    assert outcome.after["held"] == []


def test_locks_of_one_process_are_left_out_and_that_is_said(outcome: Outcome) -> None:
    assert "Not run: off (DummyBackend) works within one process only." in outcome.done.stderr
    assert "Not run: memory (LocMemBackend) works within one process only." in outcome.done.stderr


@pytest.mark.parametrize("alias", MORE)
def test_a_lock_that_excludes_nobody_ends_with_1(sqlite: Shop, alias: str) -> None:
    before = sqlite.state()
    done = sqlite.manage("demo", "--json", "--no-kill", "--using", alias, *SMALL)
    assert done.returncode == 1
    assert "oversold under the lock" in done.stderr
    assert "holds of the lock overlapped" in done.stderr
    none, run = json.loads(done.stdout)["runs"]
    assert (none["alias"], run["alias"]) == (None, alias)
    assert run["oversold"] == run["orders"] - 30 > 0
    assert run["handover_ms"] == {"median": None, "p99": None}
    assert json.loads(done.stdout)["kills"] == []
    assert sqlite.state() == before


def test_the_kill_finds_out_a_lock_that_excludes_nobody(sqlite: Shop) -> None:
    done = sqlite.manage("demo", "--json", "--using", "off", *SMALL)
    assert done.returncode == 1
    assert json.loads(done.stdout)["kills"][0]["early"] > 0
    assert "while the victim still held the lock" in done.stderr


def test_several_aliases_run_in_the_order_given(sqlite: Shop) -> None:
    words = ("--using", "default", "--using", "memory", "--using", "default")
    done = sqlite.manage("demo", "--json", "--no-kill", *words, *SMALL)
    aliases = [run["alias"] for run in json.loads(done.stdout)["runs"]]
    assert aliases == [None, "default", "memory"]


def test_plain_output_has_a_table_and_the_kill(sqlite: Shop) -> None:
    done = sqlite.manage("demo", "--using", "default", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "no lock: done" in done.stdout
    for heading in ("technique", "oversold", "orders/s", "hand-off median", "worst wait"):
        assert heading in done.stdout
    assert "40 calls to a carrier under limit=3: at most" in done.stdout
    assert "the next worker had the lock" in done.stdout
    following = done.stdout[done.stdout.index("Next: make dashboard") :]
    assert all((ROOT / path).is_file() for path in re.findall(r"docs/\S+\.md", following))


def test_a_terminal_gets_a_live_display(sqlite: Shop) -> None:
    ours, theirs = pty.openpty()
    sqlite.env["COLUMNS"] = "120"
    with sqlite.start("manage.py", "demo", "--no-kill", *SMALL, stdout=theirs) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert process.returncode == 0
    assert "━" in shown
    assert "beyond the stock" in shown
    assert "hand-off" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""


def test_missing_tables_say_run_migrate(tmp_path: Path) -> None:
    shop = Shop(SQLITE | {"NAME": str(tmp_path / "empty.sqlite3")})
    done = shop.manage("demo")
    assert done.returncode == 1
    assert "Tables of shop are missing: run migrate" in done.stderr
    assert shop.manage("migrate", "shop", "-v0").returncode == 0
    done = shop.manage("demo")
    assert done.returncode == 1
    assert "Tables of django_distlock are missing: run migrate" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--using", "nowhere"), "No such alias in DISTLOCKS: nowhere"),
        (("--workers", "1"), "a whole number from 2 on is expected, not '1'"),
        (("--stock", "none"), "a whole number from 1 on is expected, not 'none'"),
    ],
)
def test_wrong_options(sqlite: Shop, words: tuple[str, ...], said: str) -> None:
    done = sqlite.manage("demo", *words)
    assert done.returncode != 0
    assert said in done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(sqlite: Shop, sent: signal.Signals) -> None:
    before = sqlite.state()
    with _demo_in_a_locked_race(sqlite) as process:
        process.send_signal(sent)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted" in err
    assert sqlite.processes() == 0
    assert sqlite.state() == before


def test_workers_end_when_the_demo_is_killed(sqlite: Shop) -> None:
    with _demo_in_a_locked_race(sqlite) as process:
        process.kill()
    assert sqlite.wait_for_no_processes() == 0
    assert sqlite.state()["held"] == []


@contextmanager
def _demo_in_a_locked_race(shop: Shop) -> Iterator[subprocess.Popen[str]]:
    """Start a demo, and yield when one of its workers holds the lock and thinks for a while."""
    words = ("--workers", "3", "--stock", "1", "--think", "8000", "--no-kill")
    with shop.start("manage.py", "demo", *words) as process:
        try:
            assert process.stdout is not None
            assert any("table (default): 1 pieces" in line for line in process.stdout)
            deadline = time.monotonic() + 60
            while not shop.is_held():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert shop.processes() == 4
            yield process
        finally:
            process.kill()
