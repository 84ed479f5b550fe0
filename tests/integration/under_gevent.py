"""A program under gevent: greenlets and threads that take turns, each for longer than its ttl."""

# ruff: noqa: E402 - gevent patches before anything else is imported

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import subprocess
import sys
import threading
import time
from contextlib import suppress

import django
import gevent
from django.conf import settings
from django.core.management import call_command

TTL = 0.6

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": sys.argv[1],
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        }
    },
    INSTALLED_APPS=["django_distlock"],
    DISTLOCKS={
        "default": {"BACKEND": "django_distlock.backends.table.TableBackend"},
        "locmem": {"BACKEND": "django_distlock.backends.locmem.LocMemBackend"},
    },
    USE_TZ=True,
)
django.setup()

from django_distlock import LeaseLostError, LockNotHeldError, lock

tokens: list[int] = []


def work(using: str) -> None:
    """Hold the lock for two ttls."""
    with lock("turn", using=using, ttl=TTL, wait=30) as lease:
        time.sleep(2 * TTL)
        lease.check()
        tokens.append(lease.fencing_token)


def blocked(using: str) -> None:
    """Block all greenlets for two ttls, as a driver in C does, and be told of the loss by it."""
    lease = lock("blocked", using=using, ttl=TTL).acquire()
    assert lease is not None
    monkey.get_original("time", "sleep")(2 * TTL)
    assert lease.lost
    try:
        lease.check()
    except LeaseLostError:
        pass
    else:
        raise AssertionError("nothing could renew it, and it was not told")
    with suppress(LockNotHeldError):
        lease.release()
    with lock("blocked", using=using, ttl=TTL, wait=30) as later:
        assert later.fencing_token > lease.fencing_token


OTHER = """
import sys, django
from django.conf import settings
base = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(DATABASES={"default": base}, INSTALLED_APPS=["django_distlock"], USE_TZ=True)
django.setup()
from django_distlock import lock
if sys.argv[2] == "hold":
    with lock("beside", ttl=60):
        print("ready", flush=True)
        sys.stdin.read()
else:
    print("ready", flush=True)
    with lock("beside", ttl=60, wait=60):
        pass
"""


def wait_beside(using: str) -> None:
    """Wait for a lock of another process while another greenlet goes on."""
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            gevent.sleep(0.01)
            ticks += 1

    def started_as(role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", OTHER, sys.argv[1], role]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        return process

    with started_as("hold") as holder, started_as("wait"):
        assert holder.stdin
        gevent.sleep(0.5)  # the other one stands in the queue
        ticking = gevent.spawn(tick)
        waiting = gevent.spawn(lambda: lock("beside", using=using, wait=1.0).acquire())
        started = time.monotonic()
        assert waiting.get(timeout=20) is None
        assert time.monotonic() - started < 4.0, "the wait was not kept"
        ticking.kill()
        holder.stdin.close()
    assert ticks > 20, f"the other greenlet went on {ticks} times"


call_command("migrate", verbosity=0)
for alias in ("default", "locmem"):
    tokens.clear()
    gevent.joinall([gevent.spawn(work, alias) for _ in range(2)], raise_error=True)
    thread = threading.Thread(target=work, args=(alias,))
    thread.start()
    thread.join()
    assert tokens == sorted(set(tokens)), tokens
    assert len(tokens) == 3, tokens
    blocked(alias)
wait_beside("default")
print("done")
