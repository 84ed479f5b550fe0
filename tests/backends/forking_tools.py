"""What the programs that fork share: children, sessions, leases."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from django.db import connections  # noqa: E402 - the apps have to be loaded before

from django_distlock import Lease, LeaseLostError, lock  # noqa: E402

NAME = os.environ.get("DISTLOCK_FORK_NAME", "")
WHO = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}


def session(store: str) -> object:
    """Return what tells this process's session in the database from others."""
    connection = connections[store]
    with connection.cursor() as cursor:
        if connection.vendor in WHO:
            cursor.execute(WHO[connection.vendor])
            return cursor.fetchone()[0]
    return id(connection.connection)


def child(work: Callable[[], None], *, clean: bool = True) -> int:
    """Do ``work`` in a forked child, which ends through Python's finalizers or without them."""
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        work()
    except BaseException:
        traceback.print_exc()
        code = 1
    if clean:
        sys.exit(code)
    os._exit(code)


def ended_well(pid: int) -> None:
    """Wait for a child, and check how it ended."""
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child failed"


def refused(call: Callable[[], object]) -> None:
    """Check that what the parent holds is refused to the child, with the reason."""
    try:
        call()
    except LeaseLostError as error:
        said = str(error)
    else:
        said = "it was not refused"
    assert "parent process" in said, said


def taken(store: str, name: str = NAME, **options: Any) -> Lease:
    """Take a lock."""
    lease: Lease | None = lock(name, using=store, **options).acquire()
    assert lease
    return lease
