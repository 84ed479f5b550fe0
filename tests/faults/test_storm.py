"""Holders and waiters killed and stopped at random: never two holders, no long gap, no remains.

``DISTLOCK_STORM_SECONDS`` says for how long it storms; `make soak` gives each storm its share of
the minutes, and the default is for the suite.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections

from django_distlock import locks
from django_distlock.backends.table import TableBackend
from django_distlock.backends.table.queue_server import wait_queue_of
from django_distlock.backends.table.sql import MARIADB
from tests.backends.tools import LIMIT, database_alias, sessions, soon
from tests.conftest import SERVERS
from tests.faults.judging import Heirs, judge
from tests.faults.shares import SQL_STORMS
from tests.faults.weather import SECONDS, begin, end
from tests.servers import DatabaseServer


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize(("path", "store"), SQL_STORMS)
def test_holders_and_waiters_killed_and_stopped(store: str, path: str, tmp_path: Path) -> None:
    settings = database(store, tmp_path)
    with begin(f"{path}stormy", tmp_path, DISTLOCK_TEST_DATABASES=json.dumps(settings)) as run:
        if store in SERVERS and not path:  # which alone has a wait queue
            assert soon(lambda: advisory_locks(store) > 0, LIMIT), "it is looked for elsewhere"
        end(run, tmp_path, TableBackend.grace)
    if store in SERVERS:
        assert soon(lambda: not sessions(store, "stormy"))
        assert soon(lambda: advisory_locks(store) == 0)


def database(
    store: str, folder: Path, server: DatabaseServer | None = None
) -> dict[str, dict[str, Any]]:
    """Make a database for the storm alone, and return the settings of its processes."""
    server = server or SERVERS.get(store)
    if server is not None:
        server.execute("DROP DATABASE IF EXISTS stormy")
        own = server.create_database("stormy")
    else:
        own = connections.settings[store] | {"NAME": str(folder / "db.sqlite3")}
    with database_alias("stormy", own):
        call_command("migrate", database="stormy", verbosity=0)
    own = {
        key: own[key]
        for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")
        if key in own
    }
    return {"default": own, "stormy": own}


def advisory_locks(store: str) -> int:
    """Return how many advisory locks are held; MariaDB lists none: its queue is asked."""
    sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
    if store == "mariadb":
        assert MARIADB.wait_queue is not None
        digest = wait_queue_of("stormy", locks[store].key("storm"))
        name = MARIADB.wait_queue.parameters(digest, 0.0)["wait_queue"]
        sql = f"SELECT IS_USED_LOCK('{name}') IS NOT NULL"
    return int(SERVERS[store].execute(sql))


def line(what: str, token: int, **more: Any) -> dict[str, Any]:
    return {"what": what, "token": token, "pid": token, **more}


def test_the_judge_sees_each_fault() -> None:
    first = [line("sure", 1, at=1.0), line("sure", 1, at=2.0)]
    second = [line("sure", 2, at=2.5), line("released", 2, lost=False)]
    assert judge(first + second, 1.0).faults == []
    assert judge([*first, line("held", 0, at=2.9), line("sure", 2, at=3.5)], 1.0).faults == []
    for wrong in (
        [line("sure", 2, at=1.5)],
        [line("sure", 2, at=3.5)],
        [line("sure", 0, at=2.5)],
        [line("sure", 1, at=2.5) | {"pid": 7}],
        [line("refused", 1, sure=True)],
        [line("released", 1, lost=True)],
        [line("died", 1, error="…")],
    ):
        assert len(judge(first + wrong, 1.0).faults) == 1, wrong
    assert judge([*first, line("unreached", 2, error="…")], 1.0).unreached == ["…"]


def test_the_judge_waits_for_heirs_that_were_hit() -> None:
    gap = [line("sure", 1, at=2.0), line("sure", 2, at=3.5)]
    heirs = Heirs(living=0.5, turn=0.6)
    for moments, faults in (([1.6], 0), ([3.0], 0), ([1.4], 1), ([3.6], 1), ([], 1)):
        hits = [{"what": "struck", "pid": 7, "at": at} for at in moments]
        assert len(judge(gap + hits, 1.0, heirs).faults) == faults, moments
        assert len(judge(gap + hits, 1.0).faults) == 1, moments
