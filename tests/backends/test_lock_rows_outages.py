"""`lock_rows` when the server is killed, or ends the session, while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.db import Error, connections, transaction

from django_distlock import LockBackendError, LockNotAcquiredError
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests.backends.outages import Place
from tests.backends.tools import Elsewhere, soon
from tests.servers import ByStore

WAITS = ByStore(
    {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
        "mariadb": "SELECT count(*) FROM information_schema.innodb_trx"
        " WHERE trx_state = 'LOCK WAIT'",
    }
)
CUTS: dict[str, Callable[[Place], None]] = {
    "killed": lambda own: own.server.kill(),
    "ended": lambda own: own.end_sessions(),
}


@pytest.mark.parametrize("wait", [20.0, None])
@pytest.mark.parametrize("cut", CUTS)
def test_a_server_that_dies_while_we_wait_is_told_with_a_remedy(
    own: Place, name: str, cut: str, wait: float | None
) -> None:
    """And never as contention, which ``on_contention`` might skip."""
    key = f"{abs(hash(name)):x}"[:60]
    LockRow.objects.using("own").create(digest=key, name=name)
    rows = LockRow.objects.using("own").filter(pk=key)

    def want() -> None:
        with transaction.atomic(using="own"):
            lock_rows(rows, wait=wait, on_contention="skip")

    def held() -> None:
        with transaction.atomic(using="own"):
            lock_rows(rows)
            waiter.start()
            assert soon(lambda: own.server.execute(WAITS[own.server.name]) == "1", 15)
            CUTS[cut](own)

    waiter = Elsewhere(want)
    with pytest.raises(Error):
        held()
    with pytest.raises(
        LockBackendError, match=r"distlock_lock.*run this transaction again"
    ) as told:
        waiter.result()
    assert not isinstance(told.value, LockNotAcquiredError)
    assert isinstance(told.value.__cause__, Error)
    assert told.value.alias == "own"
    assert "Look at the database server of DATABASES['own']" in str(told.value)
    connections["own"].close()
    own.server.start()
    with transaction.atomic(using="own"):
        assert len(lock_rows(rows)) == 1


def test_a_connection_lost_before_is_told_alike(own: Place, name: str) -> None:
    rows = LockRow.objects.using("own").filter(name=name)

    def work() -> None:
        with transaction.atomic(using="own"):
            assert lock_rows(rows) == []
            own.end_sessions()
            time.sleep(0.1)  # for the socket to be told
            lock_rows(rows)

    with pytest.raises(LockBackendError, match="run this transaction again"):
        work()
    with transaction.atomic(using="own"):
        assert lock_rows(rows) == []
