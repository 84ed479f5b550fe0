"""Editing versioned rows in the admin, as a browser does."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.sites import AdminSite
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.forms import modelform_factory
from django.test import TestCase

from django_distlock import StaleVersionError
from django_distlock.versions.checks import check_admin_forms
from tests.versions.adminsite.site import Inline
from tests.versions.models import Country, Item, Owner

EVIL = "<script>alert(1)</script>"


class AdminTests(TestCase):
    """With a plain ModelAdmin, inlines, an editable list, and `VersionedAdmin`."""

    def setUp(self) -> None:
        self.client.force_login(User.objects.create_superuser("u"))
        self.item = Item.objects.create(name="a", price=1)
        self.url = f"/admin/versions/item/{self.item.pk}/change/"

    def sent(self, response: Any, **changes: Any) -> dict[str, Any]:
        """Return what a browser sends of the page it got."""
        page = response.content.decode()
        data = {}
        for tag in re.findall(r"<input[^>]*>", page):
            given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
            if "name" in given and given.get("type") not in ("submit", "checkbox"):
                data[given["name"]] = html.unescape(given.get("value", ""))
        for name, options in re.findall(r'<select name="(\w[^"]*)"(.*?)</select>', page, re.S):
            chosen = re.findall(r'value="([^"]*)" selected', options)
            data[name] = chosen[0] if chosen else ""
        return data | changes

    def test_change(self) -> None:
        page = self.client.get(self.url)
        self.assertContains(page, 'type="hidden" name="version"')
        data = self.sent(page, name="b")
        self.assertRedirects(self.client.post(self.url, data), "/admin/versions/item/")
        assert Item.objects.get().name == "b"
        assert "Name" in LogEntry.objects.get().get_change_message()
        assert "ersion" not in LogEntry.objects.get().get_change_message()

    def test_add(self) -> None:
        data = self.sent(self.client.get("/admin/versions/item/add/"), name="new")
        self.client.post("/admin/versions/item/add/", data)
        assert Item.objects.count() == 2

    def test_conflict_is_shown_and_input_is_kept(self) -> None:
        data = self.sent(self.client.get(self.url), price="7")
        Item.objects.update(name=EVIL)
        page = self.client.post(self.url, data)
        self.assertContains(page, "Another user has changed this item")
        self.assertContains(page, "Name is now: " + html.escape(EVIL))
        self.assertNotContains(page, EVIL)
        data = self.sent(page)
        assert (data["name"], data["price"]) == ("a", "7")
        assert self.client.post(self.url, data).status_code == 302
        assert Item.objects.values_list("name", "price").get() == ("a", 7)

    def test_token_is_needed(self) -> None:
        data = self.sent(self.client.get(self.url), name="b", version="x")
        self.assertContains(self.client.post(self.url, data), "Load the page again")
        assert Item.objects.get().name == "a"

    def test_conflict_between_judging_and_saving(self) -> None:
        save_model = admin.ModelAdmin.save_model
        runs = []

        def outrun(self: Any, request: Any, obj: Any, form: Any, change: bool) -> None:
            runs.append(obj)
            if len(runs) == 1:
                type(obj).objects.update(name="theirs")
            save_model(self, request, obj, form, change)

        data = self.sent(self.client.get(self.url), name="b")

        # What `outrun` has written is undone with the view's transaction: so it comes once more.
        def between(seconds: float) -> None:
            Item.objects.update(name="theirs")

        with (
            mock.patch.object(admin.ModelAdmin, "save_model", outrun),
            mock.patch("time.sleep", between),
        ):
            page = self.client.post(self.url, data)
        self.assertContains(page, "Another user has changed this item")
        assert len(runs) == 1
        Country.objects.create(code="de", name="a")
        url = "/admin/versions/country/de/change/"
        data = self.sent(self.client.get(url), name="b")
        runs.clear()
        with (
            mock.patch.object(admin.ModelAdmin, "save_model", outrun),
            pytest.raises(StaleVersionError),
        ):
            self.client.post(url, data)

    def test_inlines(self) -> None:
        owner = Owner.objects.create(name="o")
        Item.objects.update(owner=owner)
        url = f"/admin/versions/owner/{owner.pk}/change/"
        page = self.client.get(url)
        stale = self.sent(page, **{"items-0-price": "9"})
        Item.objects.update(name="theirs")
        page = self.client.post(url, stale)
        self.assertContains(page, "Name is now: theirs")
        assert Item.objects.get().price == 1
        assert self.client.post(url, self.sent(page)).status_code == 302
        assert Item.objects.values_list("name", "price").get() == ("a", 9)

    def test_editable_list(self) -> None:
        url = "/admin/versions/item/"
        data = self.sent(self.client.get(url), _save="Save", **{"form-0-name": "b"})
        data.pop("_selected_action", None)
        Item.objects.update(name="theirs")
        page = self.client.post(url, data)
        self.assertContains(page, "Name is now: theirs")
        data = self.sent(page, _save="Save")
        data.pop("_selected_action", None)
        assert self.client.post(url, data).status_code == 302
        assert Item.objects.get().name == "b"

    def test_delete(self) -> None:
        url = f"/admin/versions/item/{self.item.pk}/delete/"
        assert self.client.post(url, {"post": "yes"}).status_code == 302
        assert not Item.objects.exists()

    @contextmanager
    def overtaken(self, verb: str, change: Callable[[], object]) -> Iterator[list[object]]:
        """Have somebody else come between the judging of what was sent and what it does.

        What is done there is undone with the view's transaction, so it comes once more.
        """
        do = getattr(admin.ModelAdmin, verb)
        runs: list[object] = []

        def late(*args: Any, **kwargs: Any) -> None:
            runs.append(args)
            if len(runs) == 1:
                change()
            do(*args, **kwargs)

        with (
            mock.patch.object(admin.ModelAdmin, verb, late),
            mock.patch("time.sleep", side_effect=lambda seconds: change()),
        ):
            yield runs

    def test_conflict_between_judging_and_saving_a_list(self) -> None:
        url = "/admin/versions/item/"
        other = Item.objects.create(name="b", price=2)
        data = self.sent(self.client.get(url), _save="Save")
        data.pop("_selected_action", None)
        data |= {key: "mine" for key in data if key.endswith("-name")}
        theirs = Item.objects.filter(pk=self.item.pk)
        with self.overtaken("save_model", lambda: theirs.update(name="theirs")):
            page = self.client.post(url, data)
        self.assertContains(page, "Name is now: theirs")
        assert set(Item.objects.values_list("name", flat=True)) == {"theirs", other.name}
        data = self.sent(page, _save="Save")
        data.pop("_selected_action", None)
        assert self.client.post(url, data).status_code == 302
        assert set(Item.objects.values_list("name", flat=True)) == {"mine"}

    def test_conflict_between_looking_and_deleting(self) -> None:
        """What was to be deleted is so in its new version, too; what is gone is told of."""
        url = f"/admin/versions/item/{self.item.pk}/delete/"
        theirs = Item.objects.filter(pk=self.item.pk)
        with self.overtaken("delete_model", lambda: theirs.update(name="theirs")) as runs:
            assert self.client.post(url, {"post": "yes"}).status_code == 302
        assert len(runs) == 2
        assert not Item.objects.exists()
        assert LogEntry.objects.count() == 1
        again = Item.objects.create(name="a", price=1)
        url = f"/admin/versions/item/{again.pk}/delete/"
        theirs = Item.objects.filter(pk=again.pk)
        with self.overtaken("delete_model", lambda: theirs.delete()):
            page = self.client.post(url, {"post": "yes"}, follow=True)
        self.assertContains(page, "Perhaps it was deleted?")
        assert LogEntry.objects.count() == 1


class CheckTests(TestCase):
    """`distlock.W021`: forms that drop the version."""

    def found(self, model: Any = Item, **options: Any) -> list[str]:
        """Return what is said of an admin class with these options."""
        site = AdminSite()
        site.register(model, type("SomeAdmin", (admin.ModelAdmin,), options))
        found = [each for each in check_admin_forms() if each.id == "distlock.W021"]
        site.unregister(model)
        return [each.msg.split()[0] for each in found]

    def test_this_site_is_in_order(self) -> None:
        assert [e for e in run_checks() if str(e.id).startswith("distlock.")] == []

    def test_what_drops_it(self) -> None:
        class Short(Inline):
            model = Item
            fields = ("name",)

        for options in (
            {},
            {"fields": ("name", "version")},
            {"fields": ("name", ("price", "version"))},
            {"fieldsets": [(None, {"fields": ["name"]}), ("x", {"fields": ["version"]})]},
            {"exclude": ("name",)},
            {"list_display": ("pk", "name")},
        ):
            assert self.found(**options) == [], options
        for name, value in (
            ("fields", ("name",)),
            ("fieldsets", [(None, {"fields": ["name"]})]),
            ("exclude", ("version",)),
            ("readonly_fields", ("version",)),
            ("form", modelform_factory(Item, fields=("name",))),
        ):
            assert self.found(**{name: value}) == [f"SomeAdmin.{name}"]
        listed = {"list_display": ("pk", "name"), "list_editable": ("name",)}
        assert self.found(**listed) == ["SomeAdmin.list_editable"]
        assert self.found(Owner, inlines=[Short]) == ["Short.fields"]
        assert self.found(Owner, fields=("name",)) == []
        assert self.found(Country, exclude=("revision",)) == ["SomeAdmin.exclude"]
