"""Row locks in the hands of an operator: `cleanlocks`, `locks list` and `locks release`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from django_distlock import LeaseLostError, lock
from django_distlock.models import RowLock, RowSession, RowToken
from tests.backends.rowlocks import on_servers, row_alias, taken
from tests.backends.rows import DAY
from tests.backends.tools import database_alias, lock_alias
from tests.commands.tools import Ran
from tests.faults.test_stopped import goes_on, holder


@pytest.fixture
def rows(quiet: dict[str, Any]) -> Iterator[str]:
    """An alias on empty tables of row locks that nobody else uses."""
    with database_alias("quiet", quiet), row_alias("rows", "quiet"):
        for model in (RowLock, RowToken, RowSession):
            model._default_manager.using("quiet").all().delete()
        yield "rows"


def aged(seconds: float) -> None:
    """Have all that is there been used so long ago."""
    for model in (RowLock, RowToken):
        rows = model._default_manager.using("quiet").all()
        rows.update(token=F("token") - round(seconds * 1_000_000))


def names() -> list[str]:
    """Return the names that have a row."""
    found = RowLock.objects.using("quiet").order_by("name")
    return list(found.values_list("name", flat=True))


@on_servers
def test_cleanlocks_leaves_a_row_that_is_held(rows: str, name: str) -> None:
    """In tables that only this backend uses; those of the table backend are cleaned apart."""
    for which in ("old", "held"):
        taken(f"{name}:{which}", rows).release()
    aged(8 * DAY)
    taken(f"{name}:young", rows).release()
    with taken(f"{name}:held", rows) as held:
        assert Ran("cleanlocks", "--using", rows, "--dry-run").out == (
            "rows: 1 of 3 would be removed (idle for 7d)\n"
        )
        assert len(names()) == 3
        with lock_alias("plain", LOCATION="quiet"):
            ran = Ran("cleanlocks", "--using", rows, "--using", "plain")
        plain, cleaned = sorted(ran.out.splitlines())
        assert re.fullmatch(r"plain: 0 of \d+ removed \(idle for 7d\)", plain)
        assert cleaned == "rows: 1 of 3 removed (idle for 7d)"
        assert (ran.err, ran.failed) == ("", "")
        held.renew()
    assert len(names()) == 2
    assert not any("old" in each for each in names())
    with lock(f"{name}:old", using=rows, wait=0) as again:
        assert again.fencing_token > held.fencing_token


@on_servers
def test_cleanlocks_without_the_tables_of_row_locks_says_migrate(rows: str) -> None:
    with connections["quiet"].cursor() as cursor:
        cursor.execute("ALTER TABLE distlock_row RENAME TO away")
        try:
            ran = Ran("cleanlocks", "--using", rows)
        finally:
            cursor.execute("ALTER TABLE away RENAME TO distlock_row")
    assert "Run 'manage.py migrate django_distlock --database quiet'" in ran.err
    assert ran.failed == "Not cleaned: rows. See the errors above."


@on_servers
def test_a_hold_is_listed_and_released(store: str, name: str, tmp_path: Path) -> None:
    """Of another process, whose session is ended."""
    alias = f"row-{store}"
    with holder(alias, name, 30.0, tmp_path) as process:
        ran = Ran("locks", "list", "--using", alias, "--prefix", name, "--format", "json")
        ((info,),) = [told["locks"] for told in json.loads(ran.out)]
        assert (info["name"], info["holder"]["pid"]) == (name, process.pid)
        assert info["expires_at"] is None  # its session may last as long as it is renewed
        assert f" pid {process.pid}, " in Ran("locks", "list", "--using", alias).out
        ran = Ran("locks", "release", name, "--using", alias, "--yes")
        assert f"token      {info['fencing_token']}\n" in ran.out
        assert ran.out.endswith(f"Released in {alias}.\n")
        assert (ran.err, ran.code) == ("", 0)
        with lock(name, using=alias, wait=0) as lease:
            assert lease.fencing_token > info["fencing_token"]
            found = goes_on(process)
            assert {found["renew"], found["release"]} == {"LeaseLostError"}
    again = Ran("locks", "release", name, "--using", alias, "--yes")
    assert "Not held" in again.failed


@on_servers
def test_a_release_of_our_own_is_told_to_the_lease(store: str, name: str) -> None:
    alias = f"row-{store}"
    lease = taken(name, alias, renew=False)
    assert Ran("locks", "release", name, "--using", alias, "--yes").code == 0
    with pytest.raises(LeaseLostError):
        lease.release()
