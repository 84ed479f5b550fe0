"""gevent: greenlets are holders of their own; leases are renewed, or lost when nothing can run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings

from django_distlock import Lock, lock
from django_distlock.core.worker import close_connections

HERE = Path(__file__).parent
SQL = (
    *("sqlite", "postgresql", "mariadb", "row-postgresql", "row-mariadb", "version-sqlite"),
    *("advisory-postgresql", "advisory-mariadb"),
)
OTHERS = ("redis", "redlock", "etcd", "consul", "zookeeper")
ALIASES = [alias for alias in (*SQL, *OTHERS) if alias in settings.DISTLOCKS]


def run_under_gevent(program: str, *args: str, **env: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / program), *args],
        cwd=HERE.parents[1],
        env=env | {"PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def take(one: Lock) -> None:
    with one:
        pass
    close_connections()


def test_greenlets_take_turns_and_are_told_of_a_loss(tmp_path: Path) -> None:
    run_under_gevent("under_gevent.py", str(tmp_path / "db.sqlite3"))


@pytest.mark.parametrize("alias", ALIASES)
def test_a_wait_is_kept_and_stops_no_other_greenlet(alias: str, name: str) -> None:
    """Wait beside another process, which has a waiter in the queue already."""
    held, free = f"{name}:held", f"{name}:free"
    with lock(held, using=alias, ttl=90):
        in_line = threading.Thread(target=take, args=(lock(held, using=alias, wait=60),))
        in_line.start()
        run_under_gevent("waiting_under_gevent.py", alias, held, free, **os.environ)
    in_line.join(30)
    assert not in_line.is_alive()
