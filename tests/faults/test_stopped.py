"""A holder that stands still: who is granted the lock when, and what the holder is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from django_distlock import lock
from django_distlock.backends.table import TableBackend
from tests.backends.tools import STORES
from tests.faults.storm import Guarded

TTL = 0.6


@contextmanager
def holder(alias: str, name: str, ttl: float, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Lend a process that holds the lock; it is killed at the end."""
    words = [sys.executable, "-m", "tests.faults.holder", alias, name, str(ttl), str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout
            assert int(process.stdout.readline()) > 0
            yield process
        finally:
            process.kill()


def goes_on(process: subprocess.Popen[str]) -> dict[str, object]:
    """Wake the process, and return what it then met."""
    process.send_signal(signal.SIGCONT)
    found: dict[str, object] = json.loads(process.communicate("go on\n", timeout=30)[0])
    assert process.returncode == 0
    return found


@pytest.mark.parametrize("store", STORES)
def test_stopped_for_longer_than_the_ttl(store: str, name: str, tmp_path: Path) -> None:
    """The next is granted it in time; the first is refused by all that it tries, and harms none."""
    with holder(store, name, TTL, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with lock(name, using=store, wait=10) as lease:
            assert time.monotonic() - stopped < TTL + TableBackend.grace + 5.0
            assert Guarded(tmp_path).write(lease.fencing_token)
            lost = "LeaseLostError"
            assert goes_on(process) == {
                "before": lost,
                "written": False,
                "check": lost,
                "renew": lost,
                "release": lost,
            }
            lease.renew()
            assert lock(name, using=store).locked()


@pytest.mark.parametrize("store", STORES)
def test_stopped_for_less_than_the_ttl(store: str, name: str, tmp_path: Path) -> None:
    with holder(store, name, 20.0, tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        assert lock(name, using=store, wait=0).acquire() is None
        fine = dict.fromkeys(("before", "check", "renew", "release"), "fine")
        assert goes_on(process) == fine | {"written": True}
    with lock(name, using=store, wait=0):
        pass
