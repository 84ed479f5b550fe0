"""The interpreter's end: no thread of ours is cut off in what it does, and locks still work."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETTINGS = """
from django.conf import settings
backend = {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"}
settings.configure(INSTALLED_APPS=["django_distlock"], DISTLOCKS={"default": backend})
import django
django.setup()
from django_distlock import lock
"""


def printed(program: str) -> str:
    """Return what a program prints that ends well and has no complaints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_lock_in_an_exit_handler() -> None:
    """Python 3.12 begins no thread there any more."""
    use = """
import atexit
@atexit.register
def late():
    with lock("a"):
        print("held")
    print(lock("a").locked())
"""
    assert printed(SETTINGS + use) == "held\nFalse\n"


@pytest.mark.parametrize("how", ["held", "lost"])
def test_no_thread_of_ours_is_left(how: str) -> None:
    """One that is cut off while it writes to the log keeps the stream's mutex: Python aborts."""
    look = """
import atexit, threading
@atexit.register  # before ours, so that it comes after them
def look():
    print([each.name for each in threading.enumerate() if "distlock" in each.name])
"""
    use = {
        "held": """
lease = lock("a", ttl=2.4).acquire()
import time
time.sleep(2.7)
lease.check()
""",
        "lost": """
from django_distlock.signals import lock_released
told = threading.Event()
def tell(**facts):
    assert facts["outcome"] == "lost"
    told.set()
lock_released.connect(tell)
import logging
logging.getLogger("django_distlock").addHandler(logging.NullHandler())
lease = lock("a", ttl=0.05, renew=False).acquire()
assert told.wait(10)
""",
    }
    assert printed(look + SETTINGS + use[how]) == "[]\n"
