"""Row locks: a holder that dies frees the lock at once, however long its ttl."""

from __future__ import annotations

import time
from pathlib import Path

from django_distlock import lock
from tests.backends.rowlocks import on_servers, refused, taken, waits
from tests.backends.tools import Elsewhere, soon
from tests.faults.test_stopped import holder


@on_servers
def test_a_killed_holder_frees_the_lock_at_once(store: str, name: str, tmp_path: Path) -> None:
    alias = f"row-{store}"
    with holder(alias, name, 30.0, tmp_path) as process:
        assert refused(name, alias)
        waiter = Elsewhere(lambda: taken(name, alias, wait=25)).start()
        assert soon(lambda: waits(name, alias))
        time.sleep(0.1)
        assert not waiter.done()
        killed = time.monotonic()
        process.kill()
        lease = waiter.result()
        assert time.monotonic() - killed < 5.0
    lease.release()


@on_servers
def test_who_comes_later_is_not_kept_out(store: str, name: str, tmp_path: Path) -> None:
    alias = f"row-{store}"
    with holder(alias, name, 30.0, tmp_path) as process:
        assert refused(name, alias)
        killed = time.monotonic()
        process.kill()
        process.wait()
        with lock(name, using=alias, wait=25):
            assert time.monotonic() - killed < 5.0
