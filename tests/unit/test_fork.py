"""A forked child holds nothing of its parent's, leaves it alone, and can lock for itself."""

from __future__ import annotations

import os
import subprocess
import sys

from .graph import ROOT

# In a process of its own: pytest's must not be forked, and its threads would not be in the child.
PROGRAM = """
import os, threading, time, traceback
os.environ["DISTLOCK_TEST_DATABASES"] = '{"default": {"ENGINE": "django.db.backends.dummy"}}'
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
import django
django.setup()
from django_distlock import LeaseLostError, lock, locks
from django_distlock.core import blocks, watchdog
from django_distlock.core.worker import events

lease = lock("parent", ttl=2.4).acquire()
block = lock("block")
block.__enter__()
backend = locks["default"]
watchdog.worker_of(backend).submit(lambda: None)
events.submit(lambda: None)
mutexes = [blocks._mutex, watchdog._workers_mutex, lease._hold.mutex]
for mutex in mutexes:
    mutex.acquire()  # as if another thread had been inside at the moment of the fork

child = os.fork()
if child == 0:
    code = 1
    try:
        assert lease.lost and lease.remaining() == 0
        for refused in (lease.check, lease.renew, lease.release):
            try:
                refused()
            except LeaseLostError as error:
                assert "parent process" in str(error)
            else:
                raise AssertionError(refused)
        try:
            block.__exit__(None, None, None)
        except LeaseLostError:
            pass
        else:
            raise AssertionError("left the parent's block")
        assert locks["default"] is not backend
        assert lock("parent", wait=0).acquire() is not None, "the child's memory is its own"
        told = threading.Event()
        mine = lock("child", ttl=2.4).acquire()
        mine.on_lost(lambda lost: told.set())
        time.sleep(2.7)
        mine.check()  # renewed by a watchdog of the child's own
        locks["default"].force_release("child")
        assert told.wait(15), "the events of the child do not run"
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)

for mutex in reversed(mutexes):
    mutex.release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, "see above"
lease.check()  # renewed all the while
lease.release()
block.__exit__(None, None, None)
assert not lock("parent").locked()
print("both are right")
"""


def test_a_fork_leaves_the_parent_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT.parent,
        env=os.environ | {"PYTHONPATH": str(ROOT.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "both are right\n"
