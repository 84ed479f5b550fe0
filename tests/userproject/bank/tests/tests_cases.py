"""`TestCase`: every test is a transaction that is rolled back."""

# ruff: noqa: PT009, PT027 - these are tests of unittest, as Django's users write them
from __future__ import annotations

from typing import ClassVar

from django.db import IntegrityError, connection, transaction
from django.test import SimpleTestCase, TestCase
from django.test.utils import CaptureQueriesContext

from django_distlock import AlreadyHeldError, Lease, LockError, lock, lock_all, locks

from .. import services
from ..models import Account

left: list[Lease] = []
"""Leases that a test did not release."""


class LockTests(TestCase):
    account: ClassVar[Account]
    token: ClassVar[int]

    @classmethod
    def setUpTestData(cls) -> None:
        cls.account = Account.objects.create(owner="Ada")
        with lock("set up") as lease:
            cls.token = lease.fencing_token
        services.deposit(cls.account.pk, 10)

    def is_free(self) -> bool:
        return not lock(services.lock_name(self.account.pk)).locked()

    def test_in_the_body(self) -> None:
        with lock("body") as lease:
            lease.check()
            lease.renew()
            self.assertTrue(lock("body").locked())
            self.assertEqual([info.name for info in locks["default"].held("body")], ["body"])
        self.assertFalse(lock("body").locked())

    def test_tokens_rise(self) -> None:
        with lock("set up") as first:
            self.assertGreater(first.fencing_token, self.token)
        with lock("set up") as second:
            self.assertGreater(second.fencing_token, first.fencing_token)

    def test_the_code_under_test(self) -> None:
        deposits = (services.deposit, services.deposit_outside, services.deposit_decorated)
        for number, deposit in enumerate(deposits):
            self.assertEqual(deposit(self.account.pk, 1), 11 + number, deposit)
            self.assertEqual(list(locks["default"].held("account")), [], deposit)
            self.assertTrue(self.is_free(), deposit)

    def test_the_code_under_test_in_an_atomic_of_the_test(self) -> None:
        with transaction.atomic():
            self.assertEqual(services.deposit(self.account.pk, 1), 11)
            self.assertEqual(services.deposit(self.account.pk, 1), 12)
        self.assertTrue(self.is_free())

    def test_the_code_under_test_fails(self) -> None:
        with self.assertRaisesMessage(ValueError, "not today"):
            services.deposit_and_fail(self.account.pk, 1)
        self.assertTrue(self.is_free())
        self.account.refresh_from_db()
        self.assertEqual(self.account.balance, 10)
        self.assertEqual(services.deposit(self.account.pk, 1), 11)

    def test_1_a_lease_is_left(self) -> None:
        lease = lock("left", ttl=600).acquire()
        assert lease
        left.append(lease)

    def test_2_the_same_name_in_the_next_test(self) -> None:
        with lock("left", wait=0) as lease:
            lease.check()

    def test_3_a_block_is_left_by_an_error(self) -> None:
        with self.assertRaises(ZeroDivisionError), lock("left"):
            1 / 0  # noqa: B018 - the error
        self.assertFalse(lock("left").locked())

    def test_4_an_error_of_the_database(self) -> None:
        with self.assertRaises(IntegrityError), lock("left"), transaction.atomic():
            Account.objects.create(owner="Ada")
        self.assertFalse(lock("left").locked())
        with self.assertRaises(IntegrityError), transaction.atomic(), lock("left"):
            Account.objects.create(owner="Ada")
        self.assertFalse(lock("left").locked())

    def test_held_by_the_test_itself(self) -> None:
        """The code under test would wait for ever for what its own thread holds."""
        with lock(services.lock_name(self.account.pk)), self.assertRaises(AlreadyHeldError):
            services.deposit(self.account.pk, 1)

    def test_several(self) -> None:
        with lock_all("several:1", "several:2") as leases:
            self.assertEqual(len(leases), 2)
        self.assertFalse(lock("several:1").locked())

    def test_callbacks_are_the_users_only(self) -> None:
        services.told.clear()
        with self.captureOnCommitCallbacks(execute=True) as callbacks:
            services.deposit(self.account.pk, 1)
        self.assertEqual(len(callbacks), 1)
        self.assertEqual(services.told, [self.account.pk])
        with self.captureOnCommitCallbacks() as callbacks, lock("callbacks"):
            pass
        self.assertEqual(callbacks, [])

    def test_queries(self) -> None:
        """Whatever ran before, the code under test costs the same."""
        with lock("queries"):  # a name never seen may cost one more
            pass
        counts = []
        for _ in range(3):
            with CaptureQueriesContext(connection) as queries, lock("queries"):
                pass
            counts.append(len(queries))
        self.assertIn(counts, ([2] * 3, [3] * 3))
        counts = []
        for _ in range(3):
            with CaptureQueriesContext(connection) as queries:
                services.deposit(self.account.pk, 1)
            counts.append(len(queries))
        self.assertEqual(len(set(counts)), 1, counts)

    def test_a_view(self) -> None:
        for number, path in enumerate(("deposit", "deposit-by-hand")):
            answer = self.client.get(f"/{self.account.pk}/{path}/")
            self.assertEqual((answer.status_code, answer.content), (200, b"%d" % (11 + number)))
            self.assertTrue(self.is_free(), path)


class OtherLockTests(TestCase):
    """The names of the class before, in a class that may run in another process."""

    def test_nothing_is_left(self) -> None:
        for name in ("left", "body", "set up", "several:1"):
            self.assertFalse(lock(name).locked(), name)
            with lock(name, wait=0):
                pass
        self.assertEqual(list(locks["default"].held()), [])


class GuardTests(SimpleTestCase):
    """Django's guard against databases in a `SimpleTestCase` holds for locks, too."""

    def test_the_guard(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed"), lock("guarded"):
            pass
        with self.assertRaisesMessage(AssertionError, "not allowed"):
            lock("guarded").locked()

    def test_no_database_is_needed_to_make_a_lock(self) -> None:
        self.assertEqual(lock("guarded").name, "guarded")
        with self.assertRaises(LockError):
            lock("")
