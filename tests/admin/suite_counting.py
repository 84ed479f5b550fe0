"""What the Locks page asks real stores for few locks and for many; run by `test_page`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import Client, TransactionTestCase, override_settings

from tests.admin.tools import ALIASES, PAGE, OnRedis, boss, held, keys

FEW, MANY = 3, 45


def locks_named(count: int) -> list[str]:
    """Return so many names, all of which one page shows."""
    return [f"n{number:03}" for number in range(count)]


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield the statements of this thread, and of those that ask the stores by new connections."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    def created(connection: BaseDatabaseWrapper, **_facts: Any) -> None:
        connection.execute_wrappers.append(note)

    connection_created.connect(created)
    try:
        with connection.execute_wrapper(note):
            yield seen
    finally:
        connection_created.disconnect(created)


class TableTests(TransactionTestCase):
    """Locks in the database."""

    @override_settings(DISTLOCKS=ALIASES)
    def test_no_query_for_each_row(self) -> None:
        client = boss()
        client.get(PAGE)
        counted = []
        for count in (FEW, MANY):
            with held(*locks_named(count)), statements() as seen:
                self.assertEqual(len(keys(client.get(PAGE))), count)
            self.assertTrue(any("distlock" in each and "SELECT" in each for each in seen))
            counted.append(len(seen))
        self.assertEqual(*counted)


class RedisTests(OnRedis):
    """Locks in a Redis."""

    def _reads(self) -> int:
        """Return how often the server has read from its clients: once for a round trip's commands.

        Not its commands: it has none that tells the ttls of several keys.
        """
        import redis

        with redis.Redis.from_url(self.server.url()) as client:
            stats: dict[str, Any] = client.info("stats")
        return int(stats["total_reads_processed"])

    def _asked(self, client: Client, count: int) -> int:
        with held(*locks_named(count), using="redis"):
            before = self._reads()
            self.assertEqual(len(keys(client.get(PAGE))), count)
            return self._reads() - before

    def test_no_round_trip_for_each_row(self) -> None:
        client = boss()
        client.get(PAGE)
        few, many = self._asked(client, FEW), self._asked(client, MANY)
        self.assertGreater(few, 0)
        self.assertLess(many - few, (MANY - FEW) / 4)
