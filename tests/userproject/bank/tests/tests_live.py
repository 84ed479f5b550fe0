"""`LiveServerTestCase`: views run in threads of the server."""

# ruff: noqa: PT009 - these are tests of unittest, as Django's users write them
from __future__ import annotations

from urllib.error import HTTPError
from urllib.request import urlopen

from django.test import LiveServerTestCase

from django_distlock import lock

from .. import services
from ..models import Account


class LiveTests(LiveServerTestCase):
    def setUp(self) -> None:
        self.account = Account.objects.create(owner="Ada")

    def get(self, path: str) -> tuple[int, bytes]:
        try:
            with urlopen(f"{self.live_server_url}/{self.account.pk}/{path}/", timeout=20) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def test_a_view_in_its_own_transaction(self) -> None:
        for number in range(3):
            self.assertEqual(self.get("deposit"), (200, b"%d" % (number + 1)))
        with lock(services.lock_name(self.account.pk), wait=5):
            self.account.refresh_from_db()
            self.assertEqual(self.account.balance, 3)

    def test_a_view_with_the_lock_outside(self) -> None:
        self.assertEqual(self.get("deposit-by-hand"), (200, b"1"))
        self.assertEqual(self.get("deposit-by-hand"), (200, b"2"))
        self.assertFalse(lock(services.lock_name(self.account.pk)).locked())

    def test_a_view_on_an_event_loop(self) -> None:
        self.assertEqual(self.get("deposit-async"), (200, b"1"))
        self.assertFalse(lock(services.lock_name(self.account.pk)).locked())

    def test_the_test_holds_what_the_view_wants(self) -> None:
        with lock(services.lock_name(self.account.pk)):
            self.assertEqual(self.get("deposit"), (409, b"busy"))
        self.assertEqual(self.get("deposit"), (200, b"1"))
