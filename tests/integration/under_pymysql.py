"""A program whose database's driver is PyMySQL; then the server stops answering."""

from __future__ import annotations

import sys
import time

import django
import pymysql

pymysql.install_as_MySQLdb()
django.setup()

from django_distlock import LockBackendError, lock  # noqa: E402 - as in a user's manage.py

alias, name = sys.argv[1:]
for wait in (0, 20):
    with lock(name, using=alias, wait=wait) as lease:
        lease.renew()
print("ready", flush=True)
sys.stdin.readline()
started = time.monotonic()
try:
    lock(name, using=alias, wait=0).acquire()
except LockBackendError:
    took = time.monotonic() - started
    assert took < 8, f"a stopped server was waited for {took:.1f} s"
else:
    raise AssertionError("it was not stopped")
print("done", flush=True)
