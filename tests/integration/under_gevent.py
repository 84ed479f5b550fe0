"""A program under gevent: greenlets and threads that take turns, each for longer than its ttl."""

# ruff: noqa: E402 - gevent patches before anything else is imported

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
import threading
import time
from contextlib import suppress

import django
import gevent
from django.conf import settings
from django.core.management import call_command

TTL = 2.0

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
print("done")
