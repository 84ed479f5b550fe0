"""Processes in each other's way, by each way that looks before it writes: never two holders."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from django.db import connections
from django.db.utils import OperationalError

from django_distlock.models import LockRow, RowLock
from tests.backends.storm import Turn, judge
from tests.backends.tools import SERVERS, STORES, Elsewhere

PROCESSES = 3
GRANTS = 40
ALIASES = [f"{how}-{store}" for how in ("portable", "version") for store in STORES]
ALIASES += [f"row-{store}" for store in SERVERS]


@pytest.mark.parametrize("alias", ALIASES)
def test_never_two_holders_and_tokens_rise(alias: str, name: str) -> None:
    """While rows that are free are deleted, so that a name is often one never seen."""
    names = [f"{name}:{n}" for n in range(3)]
    over = threading.Event()
    model = RowLock if alias.startswith("row") else LockRow

    def sweep() -> None:
        while not over.wait(0.02):
            free = model._default_manager.using(alias.rpartition("-")[2]).filter(owner="")
            try:
                free.filter(name__contains=name.partition("[")[0][-40:]).delete()
            except OperationalError:  # busy, or a dead lock: at the next round
                connections.close_all()

    command = [sys.executable, "-m", "tests.backends.storm", alias, str(GRANTS), *names]
    started: list[subprocess.Popen[str]] = []
    with Elsewhere(sweep):
        try:
            for _ in range(PROCESSES):
                started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            printed = [process.communicate(timeout=90)[0] for process in started]
        finally:
            over.set()
            for process in started:
                process.kill()  # does nothing to one that has ended
    assert [process.returncode for process in started] == [0] * PROCESSES
    turns = [Turn(**turn) for text in printed for turn in json.loads(text)["turns"]]
    assert judge(turns) == []
    assert {turn.how for turn in turns} == {"released", "expired", "resent"}
    assert len(turns) > PROCESSES * GRANTS * 0.7


def test_the_judge_sees_two_holders_and_falling_tokens() -> None:
    first = Turn("a", 5, 1.0, 2.0, "released")
    fine = Turn("a", 6, 2.0, 3.0, "released")
    assert judge([fine, first, Turn("b", 1, 1.0, 2.0, "released")]) == []
    (fault,) = judge([first, Turn("a", 6, 1.9, 3.0, "released")])
    assert "two holders" in fault
    (fault,) = judge([first, Turn("a", 5, 2.0, 3.0, "released")])
    assert "did not rise" in fault
