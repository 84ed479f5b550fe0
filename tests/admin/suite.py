"""Tests of the Locks page without a browser; run by `test_page` on a site with the admin."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any
from unittest import mock
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.test import Client, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from django_distlock import LockNotHeldError, locks, looking
from django_distlock.backends.locmem import LocMemBackend
from django_distlock.exceptions import LockBackendError
from django_distlock.holder import this_note
from django_distlock.models import ForcedRelease, HeldLock
from django_distlock.values import Claim, Grant, LockInfo

LOCMEM = "django_distlock.backends.locmem.LocMemBackend"
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


ALIASES: dict[str, Any] = {
    "default": {"BACKEND": TABLE, "LOCATION": "default", "TTL": 100},
    "memory": {"BACKEND": LOCMEM, "LOCATION": "suite"},
}


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
    *names: str, using: str = "default", ttl: float = 3600, metadata: dict[str, Any] | None = None
) -> Iterator[None]:
    """Have somebody else hold some locks."""
    backend = locks[using]
    note = this_note(metadata)
    claims = [Claim(name, backend.key(name), os.urandom(8).hex(), ttl, note) for name in names]
    for claim in claims:
        assert isinstance(backend.try_acquire(claim, 5.0), Grant)
    try:
        yield
    finally:
        for claim in claims:
            backend.release(claim)


@override_settings(DISTLOCKS=ALIASES)
class ListTests(TransactionTestCase):
    """What the list shows."""

    def test_every_alias_is_listed(self) -> None:
        client = boss()
        with held("a"), held("b", using="memory"):
            self.assertEqual(sorted(names(client)), ["a", "b"])
            page = client.get(PAGE)
        self.assertContains(page, "a</bdi>")
        self.assertContains(page, "memory · locmem")
        self.assertContains(page, "2 locks are held")

    def test_filters(self) -> None:
        client = boss()
        with held("invoice:1", "invoice:2"), held("stock", using="memory", metadata={"u": "ada"}):
            self.assertEqual(names(client, q="INVOICE"), ["invoice:1", "invoice:2"])
            self.assertEqual(names(client, q="invoice: :2"), ["invoice:2"])
            self.assertEqual(names(client, q="ada"), ["stock"])
            self.assertEqual(names(client, alias="memory"), ["stock"])
            self.assertEqual(names(client, technique="table"), ["invoice:1", "invoice:2"])
            self.assertEqual(names(client, older=3600), [])
            self.assertEqual(names(client, state="ending"), [])
            self.assertContains(client.get(PAGE, {"q": "2"}), "of 3 locks")
            self.assertContains(client.get(PAGE, {"q": "nothing"}), "No lock is like that.")

    def test_what_ends_soon(self) -> None:
        client = boss()
        with held("soon", ttl=9), held("late", ttl=90):
            self.assertEqual(names(client, state="ending"), ["soon"])

    def test_what_has_expired(self) -> None:
        client = boss()
        for using in ("default", "memory"):
            with held(f"gone in {using}", using=using, ttl=0.05), held("kept", using=using):
                time.sleep(0.2)
                self.assertEqual(names(client), ["kept"])
                self.assertEqual(names(client, state="expired"), [f"gone in {using}"])
                page = client.get(PAGE, {"state": "expired"})
                self.assertContains(page, "1 lease has expired")
                self.assertContains(page, "expired 0s ago")
                self.assertNotContains(page, "Release…")
                detail = client.get(f"{PAGE}hold/", {"hold": keys(page)})
                self.assertContains(detail, f"gone in {using}")
                asking = client.get(f"{PAGE}release/", {"hold": keys(page)})
                self.assertContains(asking, "has ended")
            for name in (f"gone in {using}", "kept"):  # who takes it anew has not lost it
                with held(name, using=using):
                    pass
            self.assertEqual(names(client, state="expired"), [])

    def test_sorting(self) -> None:
        client = boss()
        with held("b", ttl=50), held("c", ttl=70), held("a", ttl=60):
            self.assertEqual(names(client), ["b", "c", "a"])
            self.assertEqual(names(client, o="held"), ["a", "c", "b"])
            self.assertEqual(names(client, o="name"), ["a", "b", "c"])
            self.assertEqual(names(client, o="left"), ["b", "a", "c"])
            self.assertEqual(names(client, o="-token"), ["a", "c", "b"])
            for order in ("alias", "holder", "-waiters", "nonsense"):
                self.assertEqual(len(names(client, o=order)), 3)
            self.assertContains(client.get(PAGE, {"o": "name"}), 'aria-sort="ascending"', count=1)

    def test_pages(self) -> None:
        client = boss()
        several = [f"n{number:03}" for number in range(7)]
        with mock.patch.object(admin.site.get_model_admin(HeldLock), "per_page", 3), held(*several):
            self.assertEqual(names(client, o="name"), several[:3])
            self.assertEqual(names(client, o="name", p=3), several[6:])
            self.assertEqual(names(client, o="name", p=99), several[6:])
            self.assertEqual(names(client, o="name", p="-1"), several[:3])
            page = client.get(f"{PAGE}?o=name&p=2")
            self.assertContains(page, '<span aria-current="page">', count=1)
            self.assertContains(page, "?o=name&amp;p=3")

    def test_no_query_for_each_row(self) -> None:
        client = boss()
        client.get(PAGE)
        with (
            CaptureQueriesContext(
                connection,
            ) as few,
            held("a", using="memory"),
        ):
            client.get(PAGE)
        many = [f"n{number}" for number in range(40)]
        with held(*many, using="memory"), CaptureQueriesContext(connection) as more:
            self.assertEqual(len(names(client)), 40)
        self.assertEqual(len(few), len(more))

    def test_hostile_names(self) -> None:
        client = boss()
        metadata = {"<i>": "</td><script>", "n": 1}
        with held(HOSTILE, metadata=metadata):
            page = client.get(PAGE)
            text = page.content.decode()
            detail = client.get(f"{PAGE}hold/", {"hold": keys(page)}).content.decode()
        for each in (text, detail):
            self.assertNotIn("<script>alert", each)
            self.assertNotIn("</td><script>", each)
            self.assertIn(
                "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#x27;&amp;\\x00\\u202e", each
            )
        self.assertLess(len(text), 30_000)
        self.assertIn("x" * 8000, detail)

    def test_in_chinese(self) -> None:
        client = boss()
        with translation.override("zh-hans"), held("a"):
            page = client.get(PAGE, headers={"accept-language": "zh-hans"})
        self.assertContains(page, "持有者")
        self.assertContains(page, "强制释放")


@override_settings(DISTLOCKS={**ALIASES, "down": {"BACKEND": f"{__name__}.DownBackend"}})
class StoreTests(TransactionTestCase):
    """The strip of the stores, and what is wrong with them."""

    def test_a_store_that_is_down_hides_no_other(self) -> None:
        client = boss()
        with held("a"):
            page = client.get(PAGE)
        self.assertContains(page, "a</bdi>")
        self.assertContains(page, "&lt;b&gt;refused&lt;/b&gt;")
        self.assertContains(page, "retry=down")
        self.assertContains(page, 'class="dl-store dl-up"', count=2)

    def test_requests_in_transactions_ask_all_stores_at_once_too(self) -> None:
        client = boss()
        site = admin.site.get_model_admin(HeldLock)
        hanging = {**ALIASES, "hanging": {"BACKEND": f"{__name__}.HangingBackend"}}
        atomic = mock.patch.dict(connections.settings["default"], ATOMIC_REQUESTS=True)
        go_on.clear()
        with override_settings(DISTLOCKS=hanging), atomic, mock.patch.object(site, "limit", 0.3):
            try:
                self.assertContains(client.get(PAGE), "did not answer within 0.3 s")
            finally:
                go_on.set()

    def test_an_alias_that_is_set_up_wrongly(self) -> None:
        with override_settings(DISTLOCKS={**ALIASES, "wrong": {"BACKEND": "nowhere.Nothing"}}):
            self.assertContains(boss().get(PAGE), "cannot import")

    def test_settings_that_are_no_settings(self) -> None:
        with override_settings(DISTLOCKS=[]):
            self.assertContains(boss().get(PAGE), "DISTLOCKS is a dict")

    def test_a_store_that_hangs_is_waited_for_once(self) -> None:
        client = boss()
        site = admin.site.get_model_admin(HeldLock)
        hanging = {**ALIASES, "hanging": {"BACKEND": f"{__name__}.HangingBackend"}}
        go_on.clear()
        with override_settings(DISTLOCKS=hanging), mock.patch.object(site, "limit", 0.3):
            try:
                with held("a"):
                    self.assertContains(client.get(PAGE), "did not answer within 0.3 s")
                with mock.patch.object(site, "limit", 100):
                    first = client.get(PAGE)  # waits no more, else this test does not end
                self.assertContains(first, "has not answered for")
                self.assertContains(client.get(PAGE, {"retry": "hanging"}), "did not answer within")
            finally:
                go_on.set()
            with mock.patch.object(site, "limit", 30):
                self.assertNotContains(client.get(PAGE, {"retry": "hanging"}), "The store")
                self.assertNotContains(client.get(PAGE), "The store")
        self.assertEqual([each for each in looking._late if each.alias == "hanging"], [])


@override_settings(DISTLOCKS=ALIASES)
class RefreshTests(TransactionTestCase):
    """The parts that the page asks for again and again."""

    def test_the_parts(self) -> None:
        client = boss()
        with held("a"):
            page = client.get(PAGE)
            told = json.loads(client.get(f"{PAGE}refresh/").content)
        self.assertEqual((told["held"], told["waiting"], told["down"]), (1, None, []))
        self.assertIn(keys(page)[0], unescape(told["rows"]))
        self.assertIn("memory", told["stores"])
        self.assertEqual(told["found"], "1 lock is held")

    def test_it_stays_small(self) -> None:
        client = boss()
        wide = [f"{number}{HOSTILE}" for number in range(60)]
        metadata = {"&" * 500: "<" * 500}
        with held(*wide, using="memory", metadata=metadata):
            answer = client.get(f"{PAGE}refresh/")
        self.assertEqual(answer.json()["held"], 60)
        self.assertLess(len(answer.content), 100_000)


@override_settings(DISTLOCKS=ALIASES)
class ReleaseTests(TransactionTestCase):
    """Breaking locks."""

    def test_it_is_asked_for_and_written_down(self) -> None:
        client = boss()
        with held("invoice:42"):
            [key] = keys(client.get(PAGE))
            asking = client.get(f"{PAGE}release/", {"hold": key, "back": "q=inv"})
            self.assertContains(asking, "Release this lock?")
            self.assertContains(asking, "The holder is not stopped")
            self.assertEqual(names(client), ["invoice:42"])
            done = client.post(f"{PAGE}release/", {"hold": key, "back": "q=inv"}, follow=True)
            self.assertEqual(done.redirect_chain, [(f"{PAGE}?q=inv", 302)])
            self.assertContains(done, "Released invoice:42 in default.")
            self.assertEqual(names(client), [])
        row = ForcedRelease.objects.get()
        self.assertEqual((row.name, row.alias, row.by), ("invoice:42", "default", "boss"))
        self.assertEqual(row.way, "page")
        entry = LogEntry.objects.get()
        self.assertEqual((entry.object_repr, entry.object_id), ("invoice:42", str(row.pk)))
        self.assertIn("Released in default", entry.change_message)
        history = "/admin/django_distlock/forcedrelease/"
        self.assertContains(client.get(history), "invoice:42")
        self.assertContains(client.get(f"{history}{row.pk}/change/"), "invoice:42")
        self.assertEqual(client.get(f"{history}add/").status_code, 403)
        self.assertEqual(client.post(f"{history}{row.pk}/delete/").status_code, 403)

    def test_several(self) -> None:
        client = boss()
        with held("a", "b"), held("c", using="memory"):
            chosen = [key for key in keys(client.get(PAGE)) if not key.startswith("x")]
            asking = client.get(f"{PAGE}release/", {"hold": chosen})
            self.assertContains(asking, "Release these 3 locks?")
            client.post(f"{PAGE}release/", {"hold": chosen})
            self.assertEqual(names(client), [])
        self.assertEqual(ForcedRelease.objects.count(), 3)

    def test_a_newer_holder_is_not_broken(self) -> None:
        client = boss()
        for using in ("default", "memory"):
            with held("a", using=using):
                [key] = keys(client.get(PAGE))
            with held("a", using=using):
                asking = client.get(f"{PAGE}release/", {"hold": key})
                self.assertContains(asking, "has ended")
                self.assertNotContains(asking, 'class="dl-button dl-danger"')
                done = client.post(f"{PAGE}release/", {"hold": key}, follow=True)
                self.assertContains(done, "Not released")
                self.assertEqual(names(client), ["a"])
        self.assertEqual(ForcedRelease.objects.count(), 0)

    def test_one_that_changes_hands_between_looking_and_breaking(self) -> None:
        client = boss()
        gone = LockNotHeldError("Not broken", name="a", alias="default")
        with held("a"):
            [key] = keys(client.get(PAGE))
            with mock.patch("django_distlock.admin.releasing.break_hold", side_effect=gone):
                done = client.post(f"{PAGE}release/", {"hold": key}, follow=True)
            self.assertContains(done, "Not released")

    def test_nothing_was_chosen(self) -> None:
        done = boss().post(f"{PAGE}release/", follow=True)
        self.assertContains(done, "No lock was chosen.")

    def test_a_store_that_is_down(self) -> None:
        client = boss()
        with held("a"):
            [key] = keys(client.get(PAGE))
            down = {**ALIASES, "default": {"BACKEND": f"{__name__}.DownBackend"}}
            with override_settings(DISTLOCKS=down):
                done = client.post(f"{PAGE}release/", {"hold": key}, follow=True)
        self.assertContains(done, "efault: &lt;b&gt;refused")

    def test_the_way_back_leads_nowhere_else(self) -> None:
        client = boss()
        came = {"referer": f"http://testserver{PAGE}?q=inv&p=3"}
        page = client.get(f"{PAGE}hold/", {"hold": "x"}, headers=came)
        self.assertContains(page, f"{PAGE}?q=inv&amp;p=3")
        for back in ("//evil.example/", "javascript:alert(1)", "q=<b>&next=//evil"):
            done = client.post(f"{PAGE}release/", {"back": back})
            self.assertTrue(done["Location"].startswith(PAGE), done["Location"])
            page = client.get(f"{PAGE}release/?{urlencode({'back': back, 'hold': 'x'})}")
            self.assertNotContains(page, "evil.example")


@override_settings(DISTLOCKS=ALIASES)
class PermissionTests(TransactionTestCase):
    """Who may what."""

    def test_a_viewer_sees_and_does_not_release(self) -> None:
        client = user("viewer", "view_heldlock")
        with held("a"):
            page = client.get(PAGE)
            self.assertContains(page, "a</bdi>")
            self.assertNotContains(page, "heldlock/release/")
            self.assertNotContains(page, 'type="checkbox"')
            detail = client.get(f"{PAGE}hold/", {"hold": keys(page)})
            self.assertContains(detail, "Fencing token")
            self.assertNotContains(detail, "heldlock/release/")
            for answer in (
                client.get(f"{PAGE}release/", {"hold": keys(page)}),
                client.post(f"{PAGE}release/", {"hold": keys(page)}),
            ):
                self.assertEqual(answer.status_code, 403)
            self.assertEqual(names(client), ["a"])
        self.assertEqual(client.get("/admin/django_distlock/forcedrelease/").status_code, 403)

    def test_others_see_nothing(self) -> None:
        for client in (user("clerk"), user("half", "release_heldlock")):
            for where in ("", "refresh/", "hold/", "release/"):
                self.assertEqual(client.get(PAGE + where).status_code, 403)
        self.assertIn("/login/", Client().get(f"{PAGE}refresh/")["Location"])

    def test_a_forged_request_is_refused(self) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("root"))
        self.assertEqual(client.post(f"{PAGE}release/", {"hold": "x"}).status_code, 403)

    def test_the_index_leads_here(self) -> None:
        self.assertContains(boss().get("/admin/"), PAGE)
        self.assertNotContains(user("clerk").get("/admin/"), PAGE)

    def test_there_is_nothing_inline(self) -> None:
        client = boss()
        with held("a"):
            page = client.get(PAGE)
            pages = [page, client.get(f"{PAGE}release/", {"hold": keys(page)})]
        for each in pages:
            text = each.content.decode()
            self.assertNotRegex(text, r"<script(?![^>]* src=)")
            self.assertNotRegex(text, r"<style|\sstyle=|\son\w+=|javascript:")
