"""Tests of releasing on the Locks page, and of who may; run by `test_page`."""

from __future__ import annotations

from unittest import mock
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.test import Client, TransactionTestCase, override_settings

from django_distlock import LockNotHeldError
from django_distlock.models import ForcedRelease
from tests.admin.tools import (
    ALIASES,
    DOWN,
    PAGE,
    boss,
    held,
    keys,
    names,
    user,
)


@override_settings(DISTLOCKS=ALIASES)
class ReleaseTests(TransactionTestCase):
    """Breaking locks."""

    def test_it_is_asked_for_and_written_down(self) -> None:
        client = boss()
        with held("invoice:42"):
            [key] = keys(client.get(PAGE))
            asking = client.get(f"{PAGE}release/", {"hold": key, "back": "q=inv"})
            self.assertContains(asking, "Release invoice:42?")
            self.assertContains(asking, "The holder is not stopped")
            self.assertEqual(names(client), ["invoice:42"])
            self.assertContains(asking, 'name="why"')
            said = {"hold": key, "back": "q=inv", "why": "it <b>hangs"}
            done = client.post(f"{PAGE}release/", said, follow=True)
            self.assertEqual(done.redirect_chain, [(f"{PAGE}?q=inv", 302)])
            self.assertContains(done, "Released invoice:42 in default.")
            self.assertEqual(names(client), [])
        row = ForcedRelease.objects.get()
        self.assertEqual((row.name, row.alias, row.by), ("invoice:42", "default", "boss"))
        self.assertEqual((row.way, row.why), ("page", "it <b>hangs"))
        history = "/admin/django_distlock/forcedrelease/"
        listed = client.get(history)
        self.assertContains(listed, "invoice:42")
        self.assertContains(listed, "it &lt;b&gt;hangs")
        self.assertRegex(listed.content.decode(), r"\d\d:\d\d:\d\d")
        self.assertContains(client.get(f"{history}{row.pk}/change/"), "invoice:42")
        self.assertEqual(client.get(f"{history}add/").status_code, 403)
        self.assertEqual(client.post(f"{history}{row.pk}/delete/").status_code, 403)

    def test_several(self) -> None:
        client = boss()
        with held("a", "b"), held("c", using="memory"):
            chosen = [key for key in keys(client.get(PAGE)) if not key.startswith("x")]
            page = client.get(PAGE).content.decode()
            self.assertRegex(page, r'<form method="post" action="[^"]*/release/" class="dl-list">')
            # By POST: the address would be too long for a server.
            asking = client.post(f"{PAGE}release/", {"ask": "1", "hold": chosen})
            self.assertContains(asking, "Release these 3 locks?")
            self.assertEqual(sorted(names(client)), ["a", "b", "c"])
            client.post(f"{PAGE}release/", {"hold": chosen})
            self.assertEqual(names(client), [])
        self.assertEqual(sorted(row.name for row in ForcedRelease.objects.all()), ["a", "b", "c"])

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
            down = {**ALIASES, "default": {"BACKEND": DOWN}}
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
