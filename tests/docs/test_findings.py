"""What the documentation would like to say and cannot yet: each test fails, and names its page.

A fix in the package makes one pass; the sentence on the page is then to be changed, and the test
to be moved to where the package's others are.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from django.db import connections
from django.test import override_settings

from django_distlock import Lease, LeaseLostError, LockError, lock, locks
from django_distlock.signals import lock_released

ALIAS = "locmem"


def test_who_asks_to_be_told_after_the_loss_is_told(name: str) -> None:
    """reference/api.md, on_lost: a callback that comes too late is never called."""
    lease = lock(name, using=ALIAS, ttl=0.5, renew=False).acquire()
    assert lease is not None
    time.sleep(0.55)
    assert lease.lost
    told = threading.Event()
    lease.on_lost(lambda lost: told.set())
    assert told.wait(15)


def test_a_loss_that_a_release_finds_is_signalled(name: str) -> None:
    """reference/signals.md, lock_released: nothing tells of a lock forced before its end."""
    told = threading.Event()

    def receiver(**facts: Any) -> None:
        if facts["name"] == name and facts["outcome"] == "lost":
            told.set()

    lock_released.connect(receiver)
    try:
        lease = lock(name, using=ALIAS).acquire()
        assert lease is not None
        locks[ALIAS].force_release(name)
        with suppress(LeaseLostError):
            lease.release()
        assert told.wait(15)
    finally:
        lock_released.disconnect(receiver)


def test_a_handle_carries_the_options_of_its_lock(name: str) -> None:
    """howto/transfer-a-lease.md: renew=False and max_hold end at detach()."""
    lease = lock(name, using=ALIAS, ttl=1.0, renew=False).acquire()
    assert lease is not None
    attached = Lease.attach(lease.detach())
    time.sleep(1.2)
    assert attached.lost


def test_the_wait_is_kept_while_another_writes_to_the_file(name: str) -> None:
    """explanation/guarantees.md, SQLite: wait=0.2 takes 5 seconds."""
    other = connections["default"].copy()
    other.inc_thread_sharing()
    other.ensure_connection()
    table = "django_distlock.backends.table.TableBackend"
    setting = {"default": {"BACKEND": table, "LOCATION": "default"}}
    with override_settings(DISTLOCKS=setting), other.cursor() as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            begun = time.monotonic()
            with suppress(LockError):
                lock(name).acquire(wait=0.2)
            took = time.monotonic() - begun
        finally:
            cursor.execute("ROLLBACK")
            other.close()
            connections["default"].close()
    assert took < 4
