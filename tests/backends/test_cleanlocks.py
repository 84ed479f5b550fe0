"""The command `cleanlocks`, on the lock tables of this run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_distlock import lock, locks
from tests.backends.rows import DAY, HOUR, digests, emptied, put
from tests.backends.test_statements import empty_database, using
from tests.backends.tools import (
    STORES,
    database_alias,
    lock_alias,
    unreachable,
    unreachable_is_told,
)


@pytest.fixture
def alias(quiet: dict[str, Any]) -> Iterator[str]:
    """A lock alias on an empty table that nobody else uses."""
    with using(quiet, RENEW=False) as alias:
        emptied(alias)
        yield alias
        emptied(alias)


class Ran:
    """What a run of the command printed, and how it ended."""

    def __init__(self, *arguments: str, **options: Any) -> None:
        out, err = StringIO(), StringIO()
        self.failed = ""
        try:
            call_command("cleanlocks", *arguments, stdout=out, stderr=err, no_color=True, **options)
        except CommandError as error:
            self.failed = str(error) if error.returncode == 1 else f"exit {error.returncode}"
        self.out, self.err = out.getvalue(), err.getvalue()


# -- what is cleaned -----------------------------------------------------------------------------


def test_what_was_idle_for_the_retention_goes(alias: str, name: str) -> None:
    put(alias, f"{name}:old", granted=8 * DAY, freed=8 * DAY)
    kept = put(alias, f"{name}:young", granted=6 * DAY, freed=6 * DAY)
    ran = Ran(using=[alias])
    assert ran.out == "own: 1 of 2 removed (idle for 7d)\n"
    assert (ran.err, ran.failed) == ("", "")
    assert digests(alias) == {kept}


def test_a_dry_run_only_says(alias: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    ran = Ran("--using", alias, "--dry-run")
    assert ran.out == "own: 1 of 1 would be removed (idle for 7d)\n"
    assert len(digests(alias)) == 1


@pytest.mark.parametrize(
    ("given", "shown", "removed"),
    [
        ("7200", "2h", 2),
        ("5h", "5h", 1),
        ("90m", "90m", 2),
        ("3601", "3601s", 3),
        (7200, "2h", 2),
        (timedelta(hours=5), "5h", 1),
        (None, "7d", 0),
    ],
)
def test_another_age_for_once(alias: str, name: str, given: Any, shown: str, removed: int) -> None:
    for hours in (1.2, 3, 6):
        put(alias, f"{name}:{hours}", granted=hours * HOUR, freed=hours * HOUR)
    ran = Ran(using=alias, older_than=given)
    assert ran.out == f"own: {removed} of 3 removed (idle for {shown})\n"


def test_held_locks_stay_and_tokens_rise(alias: str, name: str) -> None:
    with lock(name, using=alias) as lease:
        assert "0 of 1 removed" in Ran(using=alias, older_than=60).out
        lease.renew()
    with lock(name, using=alias) as again:
        assert again.fencing_token > lease.fencing_token


def test_rows_of_aliases_that_are_gone(alias: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY, prefix="an alias of last year")
    assert "1 of 1 removed" in Ran(using=alias).out


# -- which aliases -------------------------------------------------------------------------------


def test_without_a_choice_it_is_all_aliases(alias: str, name: str) -> None:
    here = [alias, *(store for store in STORES if store in locks)]  # MySQL is begun late
    for database in here:
        put(database, name, granted=8 * DAY, freed=8 * DAY)
    plain, spelled = Ran("--dry-run"), Ran("--all", "--dry-run")
    assert plain.out == spelled.out
    assert (plain.err, plain.failed) == ("", "")
    named = [one for line in plain.out.splitlines() for one in line.split(":")[0].split(", ")]
    assert sorted(named) == sorted(locks)
    assert Ran().failed == ""
    for database in here:
        assert locks[database].key(name) not in digests(database)


def test_several_by_name(alias: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    ran = Ran("--using", "locmem", "--using", alias)
    assert [line.split(":")[0] for line in ran.out.splitlines()] == ["locmem", "own"]
    assert "own: 1 of 1 removed" in ran.out


def test_an_alias_that_is_not_there(alias: str) -> None:
    ran = Ran(using=[alias, "nowhere"])
    assert ran.failed.startswith("DISTLOCKS has no alias 'nowhere'. It has: 'default', ")
    assert ran.out == ""


def test_a_backend_that_cannot_be_cleaned(alias: str) -> None:
    """It is no failure to have one, nor to ask for it."""
    with lock_alias("other", BACKEND="tests.contract.queueing.TokenlessBackend"):
        for ran in (Ran(), Ran("--using", "other", "--using", alias)):
            assert "other: nothing to clean" in ran.out
            assert "own: 0 of 0 removed" in ran.out
            assert (ran.err, ran.failed) == ("", "")


def test_a_shared_table_is_cleaned_by_the_longest_retention(alias: str, name: str) -> None:
    """Whichever of its aliases is named: a row's age is judged for the one that wants it most."""
    with (
        lock_alias("first", LOCATION=alias, PREFIX="a", RETENTION=3600),
        lock_alias("second", LOCATION=alias, PREFIX="b", RETENTION=30 * DAY),
    ):
        put(alias, name, granted=8 * DAY, freed=8 * DAY, prefix="a")
        put(alias, name, granted=40 * DAY, freed=40 * DAY, prefix="b")
        for ran in (Ran("--using", "first", "--dry-run"), Ran("--using", "second", "--dry-run")):
            assert ran.out == "own, first, second: 1 of 2 would be removed (idle for 30d)\n"
        # Cleaned once, not once for each alias.
        assert Ran("--using", "first", "--using", "second").out.count("\n") == 1
        assert digests(alias) == {locks["first"].key(name)}
        ran = Ran(using="first", older_than="7d")
        assert ran.out == "own, first, second: 1 of 1 removed (idle for 7d)\n"


# -- failures ------------------------------------------------------------------------------------


def test_an_alias_that_is_down_does_not_stop_the_others(alias: str, store: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    with database_alias("down", unreachable(store)), lock_alias("down", LOCATION="down"):
        ran = Ran("--using", "down", "--using", alias)
    assert ran.out == "own: 1 of 1 removed (idle for 7d)\n"
    assert ran.err.startswith("down: Lock store error while cleaning: OperationalError: ")
    assert unreachable_is_told(store, "down") in ran.err
    assert ran.failed == "Not cleaned: down. See the errors above."


def test_a_missing_table_says_migrate(store: str, tmp_path: Path) -> None:
    with using(empty_database(store, "uncleanable", tmp_path)) as alias:
        ran = Ran(using=alias)
    assert "Run 'manage.py migrate django_distlock --database own'" in ran.err
    assert ran.failed == "Not cleaned: own. See the errors above."


@pytest.mark.parametrize(
    "conf",
    [
        {"BACKEND": "no.such.Backend"},
        {"LOCATION": "no such database"},
        {"RETENTION": 5},
        {"TIMEOUT": 5},
    ],
    ids=str,
)
def test_an_alias_set_up_wrongly_does_not_stop_the_others(
    alias: str, name: str, conf: dict[str, Any]
) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    with lock_alias("broken", **conf):
        ran = Ran()
        assert "own: 1 of 1 removed" in ran.out
        assert ran.err.startswith("broken: DISTLOCKS['broken']")
        assert ran.failed == "Not cleaned: broken. See the errors above."
        assert Ran(using=alias).failed == ""  # who does not ask for it is not told
        assert Ran(using="broken").failed == ran.failed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--older-than", "0"], "--older-than must be between 60"),
        (["--older-than", "7y"], "--older-than must be a number of seconds, or"),
        (["--older-than", "-7d"], "--older-than"),
        (["--batch-size", "0"], "batch is a number from 1 to 10000, not 0"),
        (["--batch-size", "many"], "--batch-size: invalid int value"),
        (["--format", "xml"], "--format: invalid choice"),
        (["--all", "--using", "locmem"], "--using: not allowed with argument --all"),
    ],
    ids=" ".join,
)
def test_options_out_of_range_touch_nothing(options: list[str], said: str) -> None:
    ran = Ran(*options)
    assert said in ran.failed
    assert ran.out == ""


# -- how it is told ------------------------------------------------------------------------------


def test_json(alias: str, store: str, name: str) -> None:
    put(alias, name, granted=8 * DAY, freed=8 * DAY)
    with database_alias("down", unreachable(store)), lock_alias("down", LOCATION="down"):
        ran = Ran("--using", "down", "--using", alias, "--format", "json", "--dry-run")
    first, second = sorted(json.loads(ran.out), key=lambda report: report["aliases"])
    assert first.pop("error").startswith("Lock store error while")
    assert first == {
        "aliases": ["down"], "older_than": 604800.0, "dry_run": True,
        "removed": None, "seen": None, "seconds": None,
    }  # fmt: skip
    assert second.pop("seconds") >= 0
    assert second == {
        "aliases": ["own"], "older_than": 604800.0, "dry_run": True,
        "removed": 1, "seen": 1, "error": None,
    }  # fmt: skip
    assert ran.failed == "Not cleaned: down. See the errors above."
    assert ran.err.startswith("down: Lock store error")


def test_verbosity(alias: str) -> None:
    assert Ran(using=alias, verbosity=0).out == ""
    assert Ran(using=alias, verbosity=1).out == "own: 0 of 0 removed (idle for 7d)\n"
    told = Ran(using=alias, verbosity=2).out
    assert re.fullmatch(r"own: 0 of 0 removed \(idle for 7d, \d+\.\d s\)\n", told)


def test_batches(alias: str, name: str) -> None:
    for number in range(5):
        put(alias, f"{name}:{number}", granted=8 * DAY, freed=8 * DAY)
    assert "5 of 5 removed" in Ran("--using", alias, "--batch-size", "2").out


def test_as_cron_runs_it(store: str, name: str) -> None:
    """In a process of its own: the exit code, and nothing but the line on a good day."""
    put(store, name, granted=8 * DAY, freed=8 * DAY)
    command = [sys.executable, "-W", "error", "-m", "django", "cleanlocks"]
    done = subprocess.run(
        [*command, "--using", store], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    # Aliases that share a table are named together, and it is cleaned once.
    named, _, report = done.stdout.partition(": ")
    assert named.split(", ")[0] == store
    assert report.endswith("removed (idle for 7d)\n")
    assert done.stdout.count("\n") == 1
    assert locks[store].key(name) not in digests(store)
    done = subprocess.run(
        [*command, "--using", "nowhere"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("CommandError: DISTLOCKS has no alias 'nowhere'.")


def test_the_help_names_every_option() -> None:
    command = [sys.executable, "-m", "django", "cleanlocks", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    for option in ("--using", "--all", "--older-than", "--dry-run", "--batch-size", "--format"):
        assert option in done.stdout
    assert "exit code is 1" in done.stdout
