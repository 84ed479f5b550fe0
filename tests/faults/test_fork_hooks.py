"""A fork of which Python tells nothing, as uWSGI makes it unless it is told to run the hooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(__file__).resolve().parents[2]
ALIASES = (
    "locmem", "sqlite", "postgresql", "mariadb", "row-postgresql", "row-mariadb",
    "advisory-postgresql", "advisory-mariadb", "redis", "redlock", "etcd", "consul", "zookeeper",
)  # fmt: skip

PROGRAM = """
import logging, os, random, sys, threading, traceback
os.register_at_fork = lambda **hooks: None  # those of the modules above are Python's own
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
import asyncio
from django_distlock import LeaseLostError, lock, locks

alias, name = sys.argv[1:]

async def use():
    async with lock(name + "-async", using=alias) as lease:
        lease.check()

def work():
    for refused in (given.release, lease.renew):
        try:
            refused()
        except LeaseLostError as error:
            assert "parent process" in str(error)
        else:
            raise AssertionError(refused)
    with lock(name + "-used", using=alias) as mine:
        mine.check()
    assert lease.lost
    assert alias == "locmem" or lock(name, using=alias, wait=0).acquire() is None
    asyncio.run(use())

lease = lock(name, using=alias, ttl=30).acquire()
given = lock(name + "-given", using=alias, ttl=30).acquire()
with lock(name + "-used", using=alias):
    pass
if not locks[alias].thread_sensitive:  # asgiref's thread for those does not outlive a fork
    asyncio.run(use())
child = os.fork()
if child == 0:
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed"
lease.renew()
lease.release()
given.release()
assert not lock(name, using=alias).locked()
print("both are right")
"""


@pytest.mark.parametrize("alias", [each for each in ALIASES if each in settings.DISTLOCKS])
def test_a_child_that_is_not_told_of_the_fork(alias: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, alias, name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "both are right\n"
