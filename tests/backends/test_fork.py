"""Processes that fork, with what they hold, wait for and have open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.forking import ON_SERVERS, SCENARIOS
from tests.backends.tools import SERVERS

ROOT = Path(__file__).resolve().parents[2]

# Python 3.12 warns of every fork of a process with threads, which is what is tested here.
WARNINGS = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
# In a child the other threads of its parent are gone; psycopg, and from Python 3.13 on sqlite3, say
# that what these had open is dropped. (psycopg leaves the socket alone, being in another process
# than it began in.)
DROPPED = [
    *("-W", "ignore:<psycopg:ResourceWarning"),
    *("-W", "ignore:unclosed database in <sqlite3:ResourceWarning"),
]
MORE = {
    "inside_contention": DROPPED,
    "in_the_wait_queue": DROPPED,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_fork(scenario: str, store: str, name: str) -> None:
    run(scenario, store, name)


@pytest.mark.parametrize("scenario", ON_SERVERS)
@pytest.mark.parametrize("store", SERVERS)
def test_fork_of_a_servers_client(scenario: str, store: str, name: str) -> None:
    run(scenario, store, name)


def run(scenario: str, store: str, name: str) -> None:
    """Run a scenario as a process."""
    words = [*WARNINGS, *MORE.get(scenario, []), "-m", "tests.backends.forking"]
    done = subprocess.run(
        [sys.executable, *words, scenario, store],
        cwd=ROOT,
        env=os.environ | {"DISTLOCK_FORK_NAME": name},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""
