"""A program under gevent that waits for a lock of another process while a greenlet goes on."""

# ruff: noqa: E402 - gevent patches before anything else is imported

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
import time

import django
import gevent

django.setup()

from django_distlock import lock

alias, held, free = sys.argv[1:]
WAIT = 4.0
PAUSE = 0.01
longest = 0.0


def tick() -> None:
    """Measure for how long the other greenlets stop this one."""
    global longest
    while True:
        started = time.monotonic()
        gevent.sleep(PAUSE)
        longest = max(longest, time.monotonic() - started - PAUSE)


def wait() -> None:
    """Wait for the whole time, in vain."""
    started = time.monotonic()
    assert lock(held, using=alias, wait=WAIT).acquire() is None
    took = time.monotonic() - started
    assert WAIT - 0.1 < took < WAIT + 6.0, f"waited for {took:.2f} s"


with lock(free, using=alias):  # what is made once is there
    pass
ticking = gevent.spawn(tick)
gevent.joinall([gevent.spawn(wait) for _ in range(2)], raise_error=True)
ticking.kill()
assert longest < WAIT / 2, f"the other greenlet stood still for {longest:.2f} s"
print("done")
