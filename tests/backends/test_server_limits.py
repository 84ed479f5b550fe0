"""Servers with the limits of a careful administrator: none of them ends a wait, or costs a lock."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from django_distlock import LeaseLostError, LockBackendError, LockNotAcquiredError, lock, locks
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests.backends.test_lock_rows import locked_elsewhere, rows
from tests.backends.test_odd_settings import BACKENDS, stress
from tests.backends.tools import (
    SERVERS,
    Elsewhere,
    database_alias,
    elsewhere,
    lock_alias,
    make_role,
)
from tests.conftest import SERVERS as STARTED
from tests.servers import ByStore

ALL: dict[str, dict[str, Any]] = BACKENDS | {
    "advisory": {"BACKEND": "django_distlock.backends.advisory.AdvisoryBackend"}
}
OF_BOTH = [
    "--innodb-lock-wait-timeout=1",
    "--innodb-rollback-on-timeout=ON",
    "--wait-timeout=4",
]
LIMITS: dict[str, list[str]] = {
    "postgresql": [
        *("-c", "lock_timeout=1s"),
        *("-c", "statement_timeout=3s"),
        *("-c", "idle_session_timeout=4s"),
    ],
    "mariadb": [*OF_BOTH, "--max-statement-time=3"],
    "mysql": [*OF_BOTH, "--max-execution-time=3000"],
}
PAGE = (Path(__file__).parents[2] / "docs/howto/deploy.md").read_text()
RIGHTS = ByStore(
    zip(
        ("postgresql", "mariadb"),
        re.findall(r"```sql granted\n(.*?)```", PAGE, re.DOTALL),
        strict=True,
    )
)
"""What the page on deployment has a role be granted."""
SAFE = "SET sql_safe_updates = 1"
"""What refuses a write that names no key, on MariaDB and MySQL."""
UNDOING: dict[str, dict[str, Any]] = {"mariadb": {"nowait": True}, "mysql": {"wait": 1}}
"""What ends in the error after which the server undoes the whole transaction."""


@pytest.fixture(scope="module", params=SERVERS)
def limited(request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias "limited" of a server of the module's own; returns the store."""
    store: str = request.param
    with type(STARTED[store])(options=LIMITS[store]) as server:
        settings = server.create_database("shop")
        with database_alias("owner", settings):
            call_command("migrate", database="owner", verbosity=0)
            role = make_role("owner", "web")
            with connections["owner"].cursor() as cursor:
                cursor.execute(RIGHTS[store])
            if store != "postgresql":
                settings["OPTIONS"]["init_command"] = SAFE
            with database_alias("limited", settings | role):
                yield store


@pytest.mark.parametrize("backend", ALL)
def test_who_has_waited_holds_the_lock_alone(limited: str, backend: str, name: str) -> None:
    with lock_alias("limited", LOCATION="limited", **ALL[backend]):
        tokens = stress("limited", name)
        assert tokens == sorted(set(tokens))
        with lock(name, using="limited", ttl=20):
            waiter = Elsewhere(lambda: lock(name, using="limited", wait=20).acquire()).start()
            time.sleep(1.5)
        lease = waiter.result()
        assert lease
        assert elsewhere(lambda: lock(name, using="limited", wait=0).acquire()) is None
        assert [info.name for info in locks["limited"].held()] == [name]
        assert locks["limited"].force_release(name).fencing_token == lease.fencing_token
        with pytest.raises(LeaseLostError):
            lease.release()


def test_a_transaction_that_the_server_has_undone_does_not_go_on(limited: str, name: str) -> None:
    """What was written before is lost, which must not pass without a word."""
    LockRow.objects.using("limited").create(digest=name[-40:], name=name)
    options = UNDOING.get(limited, {"nowait": True})
    with locked_elsewhere("limited", name[-40:]):
        if limited in UNDOING:
            with (
                pytest.raises(LockNotAcquiredError, match="undone this transaction"),
                transaction.atomic(using="limited"),
            ):
                lock_rows(rows("limited", name[-40:]), **options, on_contention="skip")
        else:
            with transaction.atomic(using="limited"):
                found = lock_rows(rows("limited", name[-40:]), **options, on_contention="skip")
                assert found == []
                assert LockRow.objects.using("limited").filter(name=name).exists()


@pytest.mark.parametrize("backend", ALL)
def test_a_role_without_rights_is_told_what_it_needs(limited: str, backend: str, name: str) -> None:
    role = make_role("owner", f"no_{backend}")
    with (
        database_alias("none", connections.settings["limited"] | role),
        lock_alias("none", LOCATION="none", **ALL[backend]),
        pytest.raises(LockBackendError, match="GRANT it SELECT, INSERT, UPDATE and DELETE"),
    ):
        lock(name, using="none", wait=0).acquire()
