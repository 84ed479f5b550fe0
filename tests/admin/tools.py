"""What the tests of the Locks page without a browser share: users, locks, and stores that fail."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client, TransactionTestCase, override_settings

from django_distlock import locks
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.core.holder import this_note
from django_distlock.core.values import Claim, Grant, LockInfo
from django_distlock.exceptions import LockBackendError
from tests.servers import Redis

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"
REDIS = "django_distlock.backends.redis.RedisBackend"
TABLE = "django_distlock.backends.table.TableBackend"
PAGE = "/admin/django_distlock/heldlock/"
HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e\ud800" + "x" * 9000

go_on = threading.Event()


class HangingBackend(LocMemBackend):
    """A store that hangs until it is told to go on."""

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        assert go_on.wait(30)
        return super().scan(prefix)


class DownBackend(LocMemBackend):
    """A store that is down."""

    def scan(self, prefix: str) -> Iterator[LockInfo]:
        raise LockBackendError("<b>refused</b>", alias=self.alias)


class SparingBackend(LocMemBackend):
    """A store that frees no lock by force."""

    force_releases = False


HANGING = f"{__name__}.HangingBackend"
DOWN = f"{__name__}.DownBackend"
SPARING = f"{__name__}.SparingBackend"
HIDING = "tests.contract.queueing.HidingBackend"

ALIASES: dict[str, Any] = {
    "default": {"BACKEND": TABLE, "LOCATION": "default", "TTL": 100},
    "memory": {"BACKEND": LOCMEM, "LOCATION": "suite"},
}


class OnRedis(TransactionTestCase):
    """Tests of the page with the alias "redis", on a Redis of their own."""

    server: Redis

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.enterClassContext(Redis(persistent=False))

    def setUp(self) -> None:
        redis = {"BACKEND": REDIS, "LOCATION": self.server.url()}
        self.enterContext(override_settings(DISTLOCKS={**ALIASES, "redis": redis}))


def user(name: str, *permissions: str) -> Client:
    """Return the client of a user who may do so much."""
    made = User.objects.create_user(name, is_staff=True)
    made.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(made)
    return client


def boss() -> Client:
    """Return the client of a user who may see and release."""
    return user("boss", "view_heldlock", "release_heldlock", "view_forcedrelease")


def keys(response: Any) -> list[str]:
    """Return the keys of the holds on a page."""
    found = re.findall(r'<tr role="row" data-key="([^"]+)"', response.content.decode())
    return [unescape(each) for each in found if each != "empty"]


def names(client: Client, **query: Any) -> list[str]:
    """Return the names on the page that is asked for."""
    text = client.get(PAGE, query).content.decode()
    return [unescape(each) for each in re.findall(r'<bdi id="n\w+">([^<]*)</bdi></a>', text)]


@contextmanager
def held(
    *names: str,
    using: str = "default",
    ttl: float = 3600,
    left: float | None = None,
    renewed: bool = True,
    metadata: dict[str, Any] | None = None,
    shared: bool = False,
) -> Iterator[None]:
    """Have another process hold some locks, which have ``left`` of their ttl, or all of it."""
    backend = locks[using]
    note = this_note(metadata, ttl=ttl, renewed=renewed, shared=shared)
    length = ttl if left is None else left
    claims = [
        Claim(name, backend.key(name), os.urandom(8).hex(), length, note, shared=shared)
        for name in names
    ]
    for claim in claims:
        assert isinstance(backend.try_acquire(claim, 5.0), Grant)
    try:
        yield
    finally:
        for claim in claims:
            backend.release(claim)
