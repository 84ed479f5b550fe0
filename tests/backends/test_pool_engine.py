"""An ENGINE with a pool of SQLAlchemy's: a session that is closed is kept for the next user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_distlock import InvalidLockBackendError, lock
from tests.backends.test_odd_settings import stress
from tests.backends.tools import SERVERS, database_alias, lock_alias, table
from tests.conftest import SERVERS as STARTED

# By that of its releases which there is, it does not connect with mysqlclient.
ENGINE = "dj_db_conn_pool.backends.postgresql"
BACKENDS = "django_distlock.backends"


@pytest.fixture(params=[store for store in SERVERS if store == "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The database of the tests, by way of such a pool."""
    settings = STARTED[request.param].settings("distlock") | {"ENGINE": ENGINE}
    with database_alias("pooled", settings):
        yield "pooled"


def test_the_table_needs_no_session(database: str, name: str) -> None:
    """Its waiters poll: the lock of a wait queue would be left behind in the pool."""
    with lock_alias("kept", LOCATION=database):
        tokens = stress("kept", name)
        assert not table("kept").notifies
    assert len(tokens) == 60


@pytest.mark.parametrize("backend", ["row.RowBackend", "advisory.AdvisoryBackend"])
def test_locks_of_sessions_are_refused(database: str, backend: str, name: str) -> None:
    with lock_alias("kept", LOCATION=database, BACKEND=f"{BACKENDS}.{backend}"):
        for use in (lock(name, using="kept", wait=0).acquire, lock(name, using="kept").locked):
            with pytest.raises(InvalidLockBackendError, match=r"a pool of its own.*table backend"):
                use()
