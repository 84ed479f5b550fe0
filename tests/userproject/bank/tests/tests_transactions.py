"""`TransactionTestCase`: real commits, threads, the watchdog."""

# ruff: noqa: PT009, PT027 - these are tests of unittest, as Django's users write them
from __future__ import annotations

import threading
import time
from collections.abc import Callable

from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase

from django_distlock import Lease, lock, locks

from .. import services
from ..models import Account

THREADS = 4
TURNS = 3
left: list[Lease] = []


def in_threads(work: Callable[[], None]) -> None:
    """Do ``work`` in some threads at once; raise the first error of any."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            # connection.close() would keep one to a database in memory, of which Python 3.13 warns.
            BaseDatabaseWrapper.close(connection)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


class ThreadTests(TransactionTestCase):
    def test_threads_compete(self) -> None:
        counter = [0]

        def work() -> None:
            for _ in range(TURNS):
                with lock("counter", wait=60):
                    seen = counter[0]
                    time.sleep(0.005)
                    counter[0] = seen + 1

        in_threads(work)
        self.assertEqual(counter, [THREADS * TURNS])

    def test_threads_wait_for_the_main_thread(self) -> None:
        got: list[int] = []

        def work() -> None:
            with lock("main", wait=60) as lease:
                got.append(lease.fencing_token)

        with lock("main") as lease:
            thread = threading.Thread(target=in_threads, args=(work,))
            thread.start()
            time.sleep(0.2)
            self.assertEqual(got, [])
        thread.join(60)
        self.assertEqual(len(got), THREADS)
        self.assertGreater(min(got), lease.fencing_token)
        self.assertEqual(got, sorted(got))

    def test_threads_that_write_the_database_under_the_lock(self) -> None:
        pk = Account.objects.create(owner="Ada").pk

        def work() -> None:
            for _ in range(TURNS):
                with lock(services.lock_name(pk), wait=60):
                    services.add(pk, 1)

        in_threads(work)
        self.assertEqual(Account.objects.get(pk=pk).balance, THREADS * TURNS)


class LockTests(TransactionTestCase):
    def test_in_a_transaction(self) -> None:
        pk = Account.objects.create(owner="Ada").pk
        with transaction.atomic():
            services.deposit(pk, 1)
            self.assertTrue(lock(services.lock_name(pk)).locked())
        self.assertFalse(lock(services.lock_name(pk)).locked())
        with self.assertRaises(ValueError):
            services.deposit_and_fail(pk, 1)
        with lock(services.lock_name(pk), wait=5):
            self.assertEqual(Account.objects.get(pk=pk).balance, 1)

    def test_the_watchdog_renews(self) -> None:
        with lock("watched", ttl=3) as lease:
            time.sleep(3.3)
            lease.check()
            self.assertGreater(lease.remaining(), 0)
            self.assertTrue(lock("watched").locked())

    def test_1_a_lease_is_left(self) -> None:
        lease = lock("left", ttl=600).acquire()
        assert lease
        left.append(lease)  # by `self` it would be dropped at the test's end, and told of

    def test_2_the_same_name_in_the_next_test(self) -> None:
        self.assertEqual(list(locks["default"].held()), [])
        with lock("left", wait=0) as lease:
            lease.check()
