"""A user's own test-suite (`tests/userproject`), run as users run theirs, with default settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers import DATABASES, ByStore, chosen

PROJECT = Path(__file__).resolve().parents[1] / "userproject"
ROOT = PROJECT.parents[1]
FEWEST = 30  # tests that the project has at least
SQLITE = "django.db.backends.sqlite3"

STORES = (["memory", "file"] if "sqlite" in chosen() else []) + [
    store for store in DATABASES if store in chosen()
]


def run(database: dict[str, Any], *words: str) -> str:
    """Run Python in the user's project, with every warning an error, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=PROJECT,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        | {
            "USER_DATABASE": json.dumps(database),
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    output: str = done.stdout
    assert done.returncode == 0, output
    # What goes wrong in a thread or a finalizer is printed only.
    for sign in ("Warning", "Exception ignored", "Exception in thread", "Traceback", "lease is"):
        assert sign not in output, output
    return output


class Databases:
    """What a server has of databases and sessions whose names begin with some word."""

    def __init__(self, store: str, word: str) -> None:
        from tests.conftest import SERVERS

        self._server = SERVERS[store]
        self._store = store
        self._word = word

    def create(self) -> dict[str, Any]:
        """Create the user's production database, which the tests must not touch."""
        return self._server.create_database(self._word)

    def names(self) -> list[str]:
        """Return the databases, test databases among them."""
        sql = ByStore(
            {
                "postgresql": "SELECT datname FROM pg_database",
                "mariadb": "SELECT schema_name FROM information_schema.schemata",
            }
        )
        found = self._server.execute(sql[self._store]).split()
        return sorted(name for name in found if self._word in name)

    def sessions(self) -> list[str]:
        """Return the databases that somebody is connected to, one entry a session."""
        sql = ByStore(
            {
                "postgresql": "SELECT datname FROM pg_stat_activity WHERE datname IS NOT NULL",
                "mariadb": "SELECT db FROM information_schema.processlist WHERE db IS NOT NULL",
            }
        )
        found = self._server.execute(sql[self._store]).split()
        return [name for name in found if self._word in name]


@pytest.mark.parametrize("parallel", [[], ["--parallel", "2"]], ids=["plain", "parallel"])
@pytest.mark.parametrize("store", STORES)
def test_the_users_tests_pass(store: str, parallel: list[str], tmp_path: Path) -> None:
    words = ["manage.py", "test", "--noinput", *parallel]
    if store in ("memory", "file"):
        database = {"ENGINE": SQLITE, "NAME": str(tmp_path / "production.sqlite3")}
        if store == "file":
            database |= {  # as the check W004 advises
                "TEST": {"NAME": str(tmp_path / "test.sqlite3")},  # type: ignore[dict-item]
                "OPTIONS": {"transaction_mode": "IMMEDIATE"},  # type: ignore[dict-item]
            }
        check(run(database, *words))
        assert list(tmp_path.iterdir()) == []
        return
    there = Databases(store, f"user_{len(parallel)}")
    database = there.create()
    before = there.names()
    check(run(database, *words))
    assert there.names() == before
    assert there.sessions() == []


@pytest.mark.parametrize("store", STORES[:1])
def test_what_a_test_may_not_reach_is_not_reached_in_the_background(
    store: str, tmp_path: Path
) -> None:
    """With no test that may use a database Django makes none: the alias means the real one."""
    database = {"ENGINE": SQLITE, "NAME": str(tmp_path / "production.sqlite3")}
    run(database, "manage.py", "test", "bank.tests.tests_cases.GuardTests")
    assert list(tmp_path.iterdir()) == []


def check(output: str) -> None:
    """Check that all of the user's tests ran and passed."""
    ran = re.search(r"^Ran (\d+) tests", output, re.MULTILINE)
    assert ran, output
    assert int(ran[1]) >= FEWEST
    assert re.search(r"^OK$", output, re.MULTILINE), output


@pytest.mark.parametrize("store", STORES[:1])
def test_the_users_tests_pass_under_pytest_django(store: str, tmp_path: Path) -> None:
    """pytest-django makes the test environment and its databases itself."""
    database = {"ENGINE": SQLITE, "NAME": str(tmp_path / "production.sqlite3")}
    output = run(database, "-m", "pytest", "-q", "-p", "django")
    passed = re.search(r"^(\d+) passed", output, re.MULTILINE)
    assert passed, output
    assert int(passed[1]) >= FEWEST
    assert list(tmp_path.iterdir()) == []
