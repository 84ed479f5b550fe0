"""Servers with the limits of a careful administrator: none of them ends a wait, or costs a lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from django_distlock import LeaseLostError, LockNotAcquiredError, lock, locks
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests.backends.test_lock_rows import locked_elsewhere, rows
from tests.backends.test_odd_settings import BACKENDS, stress
from tests.backends.tools import SERVERS, Elsewhere, database_alias, elsewhere, lock_alias
from tests.conftest import SERVERS as STARTED

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
SAFE = "SET sql_safe_updates = 1"
"""What refuses a write that names no key, on MariaDB and MySQL."""
UNDOING: dict[str, dict[str, Any]] = {"mariadb": {"nowait": True}, "mysql": {"wait": 1}}
"""What ends in the error after which the server undoes the whole transaction."""


@pytest.fixture(scope="module", params=SERVERS)
def limited(request: pytest.FixtureRequest) -> Iterator[str]:
    """The alias "limited" of a server of the module's own; returns the store."""
    store: str = request.param
    with type(STARTED[store])(options=LIMITS[store]) as server:
        settings = server.create_database("limited")
        if store != "postgresql":
            settings["OPTIONS"]["init_command"] = SAFE
        with database_alias("limited", settings):
            call_command("migrate", database="limited", verbosity=0)
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
