"""Asynchronous tests."""

# ruff: noqa: PT009, PT027 - these are tests of unittest, as Django's users write them
from __future__ import annotations

import asyncio

from asgiref.sync import sync_to_async
from django.test import TestCase, TransactionTestCase

from django_distlock import AlreadyHeldError, lock

from .. import services
from ..models import Account


class AsyncTests(TestCase):
    async def test_in_the_body(self) -> None:
        async with lock("async") as lease:
            lease.check()
            await lease.arenew()
            self.assertTrue(await lock("async").alocked())
        self.assertFalse(await lock("async").alocked())

    async def test_tasks_compete(self) -> None:
        counter = [0]

        async def work() -> None:
            async with lock("async counter", wait=60):
                seen = counter[0]
                await asyncio.sleep(0.005)
                counter[0] = seen + 1

        await asyncio.gather(*(work() for _ in range(5)))
        self.assertEqual(counter, [5])

    async def test_the_code_under_test(self) -> None:
        account = await Account.objects.acreate(owner="Ada")
        self.assertEqual(await sync_to_async(services.deposit)(account.pk, 1), 1)
        answer = await self.async_client.get(f"/{account.pk}/deposit-async/")
        self.assertEqual(answer.content, b"2")
        self.assertFalse(await lock(services.lock_name(account.pk)).alocked())

    async def test_taken_twice_by_one_task(self) -> None:
        async with lock("twice"):
            with self.assertRaises(AlreadyHeldError):
                await lock("twice").aacquire()

    async def test_1_a_lease_is_left(self) -> None:
        assert await lock("async left", ttl=600).aacquire()

    async def test_2_the_same_name_in_the_next_test(self) -> None:
        async with lock("async left", wait=0) as lease:
            lease.check()


class AsyncTransactionTests(TransactionTestCase):
    async def test_in_the_body(self) -> None:
        async with lock("async") as lease:
            await lease.arenew()
            self.assertTrue(await lock("async").alocked())
        self.assertFalse(await lock("async").alocked())

    async def test_the_watchdog_renews(self) -> None:
        async with lock("async watched", ttl=3.0) as lease:
            await asyncio.sleep(3.3)
            lease.check()
            self.assertTrue(await lock("async watched").alocked())

    async def test_tasks_compete_for_the_database(self) -> None:
        account = await Account.objects.acreate(owner="Ada")

        async def work() -> None:
            async with lock(services.lock_name(account.pk), wait=60):
                await sync_to_async(services.add)(account.pk, 1)

        await asyncio.gather(*(work() for _ in range(5)))
        await account.arefresh_from_db()
        self.assertEqual(account.balance, 5)
