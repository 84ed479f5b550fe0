"""Tests of a Redis that stops while the Locks page releases; run by `test_page`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

from django.contrib import admin
from django.db import OperationalError

from django_distlock import locks
from django_distlock.models import ForcedRelease, HeldLock
from django_distlock.signals import lock_force_released
from tests.admin.tools import PAGE, OnRedis, boss, held, keys

LIMIT = 3.0
NAMES = ["a", "b", "c", "d"]


class RedisTests(OnRedis):
    """A store that stops after the first lock of several was broken."""

    def setUp(self) -> None:
        super().setUp()
        site = admin.site.get_model_admin(HeldLock)
        self.enterContext(mock.patch.object(site, "limit", LIMIT))

    @contextmanager
    def after_the_first(self, act: Callable[[], None]) -> Iterator[None]:
        """Do something to the server as soon as its first lock was broken; not after the block."""
        mutex, over = threading.Lock(), False

        def receiver(**facts: Any) -> None:
            with mutex:
                if facts["name"] == "a" and not over:
                    act()

        lock_force_released.connect(receiver)
        try:
            yield
        finally:
            with mutex:
                over = True
            lock_force_released.disconnect(receiver)

    def test_one_that_hangs_costs_the_limit_once(self) -> None:
        client = boss()
        with held(*NAMES, using="redis"), held("e"):
            chosen = keys(client.get(PAGE, {"o": "name"}))
            self.assertEqual(len(chosen), 5)
            begun = time.monotonic()
            try:
                with self.after_the_first(self.server.pause):
                    client.post(f"{PAGE}release/", {"hold": chosen})
                took = time.monotonic() - begun
            finally:
                self.server.resume()
            # COMMAND_TIMEOUT is 5 s, of each lock.
            self.assertLess(LIMIT * 0.9, took)
            self.assertLess(took, LIMIT + 3)
            self.until(lambda: ForcedRelease.objects.filter(name="b").exists())
            page = client.get(PAGE)
            self.assertContains(page, "Released a in redis.")
            self.assertContains(page, f"The store did not answer within {LIMIT:g} s")
            self.assertContains(page, "Free, or not: b in redis. Look at it again.")
            self.assertContains(page, "Not released: c in redis.")
            self.assertContains(page, "Not released: d in redis.")
            self.assertContains(page, "Released e in default.")
            self.assertNotContains(page, "No lock was chosen.")
            left = sorted(info.name for info in locks["redis"].held(""))
            self.assertEqual(left, ["c", "d"])
        self.written("a", "b", "e")

    def test_one_that_is_gone_is_not_asked_again(self) -> None:
        client = boss()
        with held("e"):
            with held(*NAMES, using="redis"):
                chosen = keys(client.get(PAGE, {"o": "name"}))
                with self.after_the_first(self.server.kill):
                    client.post(f"{PAGE}release/", {"hold": chosen})
                self.server.start()
                locks["redis"].close_thread()  # the connection to the one before
            page = client.get(PAGE)
        self.assertContains(page, "Released a in redis.")
        self.assertContains(page, "Free, or not: b in redis. Look at it again.")
        self.assertContains(page, "Not released: c in redis.")
        self.assertContains(page, "Released e in default.")
        self.written("a", "e")

    def written(self, *expected: str) -> None:
        """The history has these, and no others."""
        self.until(lambda: ForcedRelease.objects.count() == len(expected))
        self.assertEqual(sorted(row.name for row in ForcedRelease.objects.all()), list(expected))

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait for what a thread still does, which may write at the moment.

        SQLite in memory lets none read a table meanwhile, and does not wait for that.
        """
        end = time.monotonic() + 20
        while True:
            with suppress(OperationalError):
                if reached():
                    return
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
