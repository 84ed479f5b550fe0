"""Row locks: broken by others, handed over, forked, and cleaned."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from django_distlock import (
    LeaseLostError,
    LockBackendError,
    lock,
    locks,
)
from django_distlock.backends.row import session
from django_distlock.models import RowSession
from tests.backends.rowlocks import (
    ROOT,
    on_servers,
    row,
    row_alias,
    taken,
)
from tests.backends.tools import (
    SERVERS,
    database_alias,
    soon,
    weak_role,
)
from tests.servers import ByStore


@on_servers
def test_a_lock_is_broken_by_ending_its_session(store: str, name: str) -> None:
    """From another process: here another alias, with no knowledge of the first one's sessions."""
    alias = f"row-{store}"
    with row_alias("other", store):
        lease = taken(name, alias, metadata={"why": "test"})
        (info,) = locks["other"].held(name)
        assert info.metadata == {"why": "test"}
        assert info.holder.pid == os.getpid()
        locks["other"].force_release(name, fencing_token=lease.fencing_token)
        with lock(name, using="other", wait=0) as theirs:
            assert theirs.fencing_token > lease.fencing_token
            with pytest.raises(LeaseLostError):
                lease.renew()


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "postgresql"])
def test_a_server_that_reports_the_end_of_the_session_is_believed(
    store: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the closed socket is not seen yet: the lock was not held until the release."""
    monkeypatch.setattr(session, "_CLOSED", None)
    lease = taken(name, f"row-{store}")
    with row_alias("other", store):
        locks["other"].force_release(name)
    with pytest.raises(LeaseLostError):
        lease.release()


@on_servers
def test_a_role_that_may_not_end_a_session_is_told_what_to_do(store: str, name: str) -> None:
    alias = f"row-{store}"
    lease = taken(name, alias)
    weak = database_alias("looker", weak_role(store, "looker"))
    wanted = ByStore(postgresql="GRANT pg_signal_backend", mariadb="CONNECTION ADMIN")[store]
    with weak, row_alias("other", "looker"), pytest.raises(LockBackendError, match=wanted):
        locks["other"].force_release(name)
    lease.renew()
    lease.release()


@on_servers
def test_a_forked_child_spares_the_sessions_of_its_parent(store: str, name: str) -> None:
    words = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *words, "-m", "tests.backends.forked_row", f"row-{store}", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@on_servers
def test_cleaning_leaves_nothing_of_sessions_that_have_ended(store: str, name: str) -> None:
    alias = f"row-{store}"
    lease = taken(name, alias)
    # On MariaDB it stands in the locked row itself.
    assert RowSession.objects.using(store).exists() is (store == "postgresql")
    lease.release()
    row(alias).close_idle()
    assert soon(lambda: _cleaned(store, alias))


def _cleaned(store: str, alias: str) -> bool:
    locks[alias].clean(older_than=3600)
    return not RowSession.objects.using(store).exists()
