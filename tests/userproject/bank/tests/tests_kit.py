"""The test kit, in a user's suite: with the database, and without it."""

# ruff: noqa: PT009, PT027 - these are tests of unittest, as Django's users write them
from __future__ import annotations

from unittest import mock

from asgiref.sync import sync_to_async
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_distlock import LeaseLostError, lock
from django_distlock.testing import (
    aassert_free,
    advance_clock,
    assert_free,
    assert_held,
    expire_lease,
    hold_elsewhere,
    override_locks,
)

from .. import services
from ..models import Account


class WithTheDatabase(TestCase):
    def setUp(self) -> None:
        self.account = Account.objects.create(owner="Ada")
        self.name = services.lock_name(self.account.pk)

    def test_somebody_else_is_at_it(self) -> None:
        with hold_elsewhere(self.name):
            self.assertEqual(self.client.get(f"/{self.account.pk}/deposit/").status_code, 409)
            assert_held(self.name)
        self.assertEqual(self.client.get(f"/{self.account.pk}/deposit/").status_code, 200)
        assert_free(self.name)

    async def test_somebody_else_is_at_it_async(self) -> None:
        path = f"/{self.account.pk}/deposit/"
        async with hold_elsewhere(self.name):
            self.assertEqual((await self.async_client.get(path)).status_code, 409)
        self.assertEqual((await self.async_client.get(path)).status_code, 200)
        await aassert_free(self.name)

    def test_the_lock_is_lost_in_the_middle(self) -> None:
        lost = mock.patch.object(services, "add", side_effect=lambda *_: expire_lease(self.name))
        with lost, self.assertLogs("django_distlock"), self.assertRaises(LeaseLostError):
            services.deposit_outside(self.account.pk, 1)

    def test_in_memory(self) -> None:
        with override_locks(held={self.name}, wait=0) as memory:
            with self.assertRaises(TimeoutError):
                services.deposit(self.account.pk, 1)
            memory.release(self.name)
            self.assertEqual(services.deposit(self.account.pk, 1), 1)
            self.assertEqual(memory.taken(), [self.name])


class WithRealTransactions(TransactionTestCase):
    def test_somebody_else_is_at_it(self) -> None:
        account = Account.objects.create(owner="Ada")
        with hold_elsewhere(services.lock_name(account.pk)):
            self.assertEqual(self.client.get(f"/{account.pk}/deposit/").status_code, 409)
        self.assertEqual(self.client.get(f"/{account.pk}/deposit/").status_code, 200)

    @override_locks()
    def test_kept_until_the_commit_in_memory(self) -> None:
        account = Account.objects.create(owner="Ada")
        self.assertEqual(services.deposit(account.pk, 1), 1)
        assert_free(services.lock_name(account.pk))


@override_locks(held={"busy"}, wait=0)
class WithoutADatabase(SimpleTestCase):
    def test_busy(self) -> None:
        with self.assertRaises(TimeoutError), lock("busy"):
            self.fail("two holders")

    async def test_async(self) -> None:
        self.assertIsNone(await lock("busy").aacquire())
        async with lock("free"):
            self.assertTrue(await sync_to_async(lock("free").locked)())

    def test_paused(self) -> None:
        with self.assertRaises(LeaseLostError), lock("free", ttl=30):
            advance_clock(31)
