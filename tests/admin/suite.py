"""Tests of the Locks page without a browser; run by `test_page` on a site with the admin."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from unittest import mock

from django.contrib import admin
from django.db import connections
from django.http import QueryDict
from django.test import TransactionTestCase, override_settings
from django.utils import translation
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import SimpleTestCase

from django_distlock import inspection, lock, locks
from django_distlock.admin.asking import Asked
from django_distlock.admin.board import Board, Entry, Store
from django_distlock.admin.page import _numbers
from django_distlock.core.holder import Caller, taken_by
from django_distlock.core.values import Holder, LockInfo
from django_distlock.models import HeldLock
from tests.admin.tools import (
    ALIASES,
    DOWN,
    HANGING,
    HIDING,
    HOSTILE,
    PAGE,
    SPARING,
    boss,
    go_on,
    held,
    keys,
    names,
)

EXAMPLES = int(os.environ.get("DISTLOCK_FUZZ_EXAMPLES", "60"))


class QuestionTests(SimpleTestCase):
    """What an address asks."""

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(st.dictionaries(st.sampled_from([*Asked.__slots__, "retry", "hold"]), st.text()))
    def test_any_question(self, given: dict[str, str]) -> None:
        """An address that says anything is answered, and its own address asks the same."""
        asked = Asked.read(given)
        self.assertEqual(Asked.read(QueryDict(asked.query())), asked)
        board = Board([], [], [], [], {}, at=datetime.now(UTC))
        self.assertEqual(asked.answer(board, 50).number, 1)


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

    def test_a_store_that_is_down_is_not_counted_as_empty(self) -> None:
        client = boss()
        with override_settings(DISTLOCKS={**ALIASES, "down": {"BACKEND": DOWN}}):
            with held("a"):
                page = client.get(PAGE)
                self.assertContains(page, "1 lock in 2 of 3 stores; 1 could not be read")
                self.assertNotContains(page, "1 lock is held")
            page = client.get(PAGE)
            self.assertContains(page, "0 locks in 2 of 3 stores; 1 could not be read")
            self.assertContains(page, "No lock is held in the stores that could be read.")

    def test_a_store_that_does_not_show_its_locks_says_so(self) -> None:
        client = boss()
        with (
            override_settings(DISTLOCKS={**ALIASES, "hiding": {"BACKEND": HIDING}}),
            held("a"),
            held("b", using="hiding"),
        ):
            self.assertEqual(names(client), ["a"])
            page = client.get(PAGE)
        self.assertContains(page, "does not show its locks", count=1)
        self.assertContains(page, "1 lock is held")

    def test_what_cannot_be_released_has_no_button(self) -> None:
        client = boss()
        with (
            override_settings(DISTLOCKS={**ALIASES, "sparing": {"BACKEND": SPARING}}),
            held("a", using="sparing"),
        ):
            page = client.get(PAGE)
            self.assertContains(page, "a</bdi>")
            self.assertNotContains(page, 'name="hold"')
            self.assertNotContains(page, "release/?hold")
            detail = client.get(f"{PAGE}hold/", {"hold": keys(page)})
            self.assertNotContains(detail, "release/?hold")
            forged = {"hold": keys(page), "why": ""}
            done = client.post(f"{PAGE}release/", forged, follow=True)
            self.assertContains(done, "cannot free what another process holds")
            self.assertEqual(names(client), ["a"])

    def test_aliases_of_one_store_count_once(self) -> None:
        client = boss()
        with (
            override_settings(DISTLOCKS={**ALIASES, "again": ALIASES["default"]}),
            held("a", using="again"),
            held("b", using="memory"),
        ):
            self.assertEqual(sorted(names(client)), ["a", "b"])
            self.assertContains(client.get(PAGE), "2 locks are held")
            self.assertEqual(names(client, alias="again"), ["a"])
            self.assertEqual(names(client, alias="default"), ["a"])

    def test_filters(self) -> None:
        client = boss()
        with held("invoice:1", "invoice:2"), held("stock", using="memory", metadata={"u": "ada"}):
            self.assertEqual(names(client, q="INVOICE"), ["invoice:1", "invoice:2"])
            self.assertEqual(names(client, q="invoice: :2"), ["invoice:2"])
            self.assertEqual(names(client, q="ada"), ["stock"])
            self.assertEqual(names(client, alias="memory"), ["stock"])
            self.assertEqual(names(client, technique="table"), ["invoice:1", "invoice:2"])
            self.assertEqual(names(client, older=3600), [])
            self.assertEqual(names(client, state="missed"), [])
            self.assertContains(client.get(PAGE, {"q": "2"}), "of 3 locks")
            self.assertContains(client.get(PAGE, {"q": "nothing"}), "No locks match.")

    def test_the_view_its_user_and_the_place(self) -> None:
        client = boss()
        place = ("/srv/shop/views.py", 3, "pay")
        with taken_by(Caller(place, "shop:pay", "<b>ada</b>")), held("a"), held("b"):
            self.assertEqual(names(client, q="shop:pay"), ["a"])
            self.assertEqual(names(client, q="<b>ADA"), ["a"])
            page = client.get(PAGE, {"q": "shop:pay"})
            detail = client.get(f"{PAGE}hold/", {"hold": keys(page)})
        self.assertContains(page, "<bdi>shop:pay</bdi> · <bdi>user &lt;b&gt;ada&lt;/b&gt;</bdi>")
        self.assertContains(page, "<bdi>shop/views.py:3 pay</bdi>")
        for text in ("View", "shop:pay", "User", "&lt;b&gt;ada&lt;/b&gt;", "/srv/shop/views.py:3"):
            self.assertContains(detail, text)
        self.assertNotContains(detail, "<b>ada")

    def test_what_missed_a_renewal(self) -> None:
        client = boss()
        with (
            held("short", ttl=9),
            held("dead", ttl=600, left=190),
            held("late", ttl=600, left=210),
            held("not renewed", ttl=600, left=190, renewed=False),
        ):
            self.assertEqual(names(client, state="missed"), ["dead"])
            page = client.get(PAGE, {"q": "dead"})
            self.assertContains(page, '<td role="cell" class="dl-ttl dl-ending"')
            self.assertRegex(page.content.decode(), r'<progress max="600\.0" value="1[5-9]\d\.')
            self.assertContains(page, 'data-warns="200.0" title="Missed a renewal"')
            page = client.get(PAGE, {"q": "not renewed"})
            self.assertNotContains(page, "dl-ending")
            self.assertContains(page, 'data-warns="0.0"')

    def test_what_min_hold_keeps(self) -> None:
        """It stays taken without a renewal, and none was missed."""
        client = boss()
        lease = lock("nightly", ttl=5, min_hold=600).acquire(wait=0)
        assert lease is not None
        lease.release()
        self.assertEqual(names(client, state="missed"), [])
        page = client.get(PAGE, {"q": "nightly"})
        self.assertRegex(page.content.decode(), r"at least (9m\d\ds|10m), by min_hold")
        self.assertContains(page, 'data-warns="0.0"')
        detail = client.get(f"{PAGE}hold/", {"hold": keys(page)})
        self.assertContains(detail, "Stays taken")
        locks["default"].force_release("nightly")

    def test_a_lock_that_several_hold(self) -> None:
        """Each holder has a line of its own, which says how it holds."""
        client = boss()
        with lock("pool", limit=3), held("alone"), lock("book", shared=True):
            page = client.get(PAGE)
            self.assertContains(page, "slot 0, limit 3", count=1)
            self.assertContains(page, " · shared</span>", count=1)
            detail = client.get(f"{PAGE}hold/", {"hold": keys(client.get(PAGE, {"q": "pool"}))})
            self.assertContains(detail, "Held by several")

    def test_holders_of_one_lock_are_together(self) -> None:
        """Under its name, where the first of them is, whatever is sorted by."""
        client = boss()
        with ExitStack() as stack:
            for number in range(3):
                stack.enter_context(held("catalogue", shared=True, ttl=600, left=500 - number))
                stack.enter_context(held(f"other{number}", ttl=600, left=499.5 - number))
            for order in ("left", "-left", "name"):
                found = names(client, o=order)
                first = found.index("catalogue")
                self.assertEqual(found[first : first + 3], ["catalogue"] * 3)
                page = client.get(PAGE, {"o": order})
                self.assertContains(page, "3 holders", count=1)
                self.assertContains(page, 'class="dl-follows"', count=2)

    def test_what_may_be_stuck_comes_first(self) -> None:
        client = boss()
        with held("old"):
            self.assertContains(client.get(PAGE), "Nothing is stuck.")
            with held("dead", ttl=600, left=190), held("new"):
                self.assertEqual(names(client), ["dead", "old", "new"])
                self.assertContains(client.get(PAGE), "1 missed a renewal")
                told = json.loads(client.get(f"{PAGE}refresh/").content)
                self.assertIn("1 missed a renewal", told["verdict"])

    def test_the_verdict_and_the_order_by_what_stores_say(self) -> None:
        now = datetime.now(UTC)

        def entry(name: str, age: float, waiters: int | None = None, **more: Any) -> Entry:
            at = now - timedelta(0, age)
            info = LockInfo(name, Holder(), 1, at, now + timedelta(0, 9), waiters=waiters, **more)
            return Entry("x", "redis", info)

        entries = [
            entry("young", 1),
            entry("old", 400),
            entry("wanted", 2, 3),
            entry("dead", 5, ttl=60),
            entry("ends", 5, ttl=60, renewed=False),
        ]
        # The first two are one store, whose waiters count once.
        stores = [Store("x", waiting=3), Store("twin", waiting=3), Store("y", error="refused")]
        board = Board(stores, entries, entries, [], {}, at=now)
        self.assertEqual(
            [text for _, text in board.verdict()],
            ["y is down", "1 missed a renewal", "1 held for more than 5 minutes", "3 waiting"],
        )
        page = Asked.read({}).answer(board, 50)
        order = [each.info.name for each in page.entries]
        self.assertEqual(order, ["dead", "wanted", "old", "ends", "young"])
        self.assertEqual(Board([], [], [], [], {}).verdict(), [])

    def test_an_empty_page_says_how_to_begin(self) -> None:
        client = boss()
        self.assertContains(client.get(PAGE), "from django_distlock import lock")
        self.assertNotContains(client.get(PAGE, {"q": "x"}), "from django_distlock")

    def test_with_thousand_separators(self) -> None:
        client = boss()
        several = [f"n{number}" for number in range(1001)]
        with override_settings(USE_THOUSAND_SEPARATOR=True), held(*several, using="memory"):
            page = client.get(PAGE)
            self.assertContains(page, 'data-held="1001"')
            self.assertNotContains(page, "NaN")

    def test_the_bar_is_of_the_ttl_that_was_asked_for(self) -> None:
        client = boss()
        for ttl, left in [(600, 300), (6, 6)]:
            with held("a", ttl=ttl, left=left):
                page = client.get(PAGE).content.decode()
            [whole, value] = re.findall(r'<progress max="([\d.]+)" value="([\d.]+)"', page)[0]
            self.assertEqual(float(whole), ttl)
            self.assertAlmostEqual(float(value), left, delta=5)

    def test_what_has_expired(self) -> None:
        client = boss()
        for using in ("default", "memory"):
            with held(f"gone in {using}", using=using, ttl=0.05), held("kept", using=using):
                time.sleep(0.2)
                self.assertEqual(names(client), ["kept"])
                self.assertEqual(names(client, state="expired"), [f"gone in {using}"])
                page = client.get(PAGE, {"state": "expired"})
                self.assertContains(page, "1 lease has expired")
                self.assertRegex(page.content.decode(), r"expired \ds ago")
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
            self.assertEqual(names(client, o="nonsense"), ["b", "c", "a"])
            self.assertContains(client.get(PAGE, {"o": "name"}), 'aria-sort="ascending"', count=1)

    def test_sorting_by_alias(self) -> None:
        client = boss()
        with held("a", "d", using="memory"), held("c", "b"):
            self.assertEqual(names(client, o="alias"), ["b", "c", "a", "d"])
            self.assertEqual(names(client, o="-alias"), ["d", "a", "c", "b"])

    def test_sorting_by_what_others_say(self) -> None:
        """Of hosts and waiters a process has but one number: three holds, as a store shows them."""
        now = datetime.now(UTC)
        entries = [
            Entry("x", "redis", LockInfo(name, Holder(host, pid), 1, now, None, waiters=waiters))
            for name, host, pid, waiters in (
                ("a", "web2", 5, None),
                ("b", "web1", 70, 12),
                ("c", "web1", 8, 3),
            )
        ]
        board = Board([], entries, entries, [], {})

        def order(o: str) -> list[str]:
            page = Asked.read({"o": o}).answer(board, 50)
            return [each.info.name for each in page.entries]

        self.assertEqual(order("holder"), ["c", "b", "a"])
        self.assertEqual(order("-holder"), ["a", "b", "c"])
        self.assertEqual(order("waiters"), ["a", "c", "b"])
        self.assertEqual(order("-waiters"), ["b", "c", "a"])

    def test_what_is_held_for_longer(self) -> None:
        now = datetime.now(UTC)
        entries = [
            Entry("x", "redis", LockInfo(f"{age}", Holder(), 1, now - timedelta(0, age), None))
            for age in (9, 10, 59, 61, 4000)
        ]
        board = Board([], entries, entries, [], {}, at=now)
        for older, kept in ((0, 5), (10, 4), (60, 2), (300, 1), (86400, 0), (7, 5)):
            page = Asked.read({"older": f"{older}", "o": "held"}).answer(board, 50)
            expected = ["9", "10", "59", "61", "4000"][5 - kept :]
            self.assertEqual([each.info.name for each in page.entries], expected)

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

    def test_many_pages(self) -> None:
        """Those in between are one sign; numbers are grouped where the site groups them."""
        now = datetime.now(UTC)
        some = [
            Entry("x", "redis", LockInfo(f"{n}", Holder(), 1, now, None)) for n in range(60_001)
        ]
        board = Board([], some, some, [], {}, at=now)
        asked = Asked.read({"p": "600"})
        answered = asked.answer(board, 50)
        numbers = [each for each, _ in _numbers(asked, answered)]
        self.assertEqual(numbers, [1, None, 598, 599, 600, 601, 602, None, 1201])
        site = admin.site.get_model_admin(HeldLock)
        with (
            mock.patch("django_distlock.admin.page.gather", return_value=board),
            mock.patch.object(site, "per_page", 50),
            self.settings(USE_THOUSAND_SEPARATOR=True),
        ):
            page = boss().get(f"{PAGE}?p=600")
        self.assertContains(page, "60,001 locks are held")
        self.assertContains(page, 'data-held="60001"')
        self.assertContains(page, ">…</li>", count=2)
        self.assertContains(page, "</span>1,201</a>")

    def test_the_time_of_a_lock_is_that_of_the_site(self) -> None:
        client = boss()
        with held("a"), self.settings(TIME_ZONE="Asia/Shanghai"):
            page = client.get(f"{PAGE}hold/", {"hold": keys(client.get(PAGE))})
        self.assertRegex(page.content.decode(), r"\d\d:\d\d:\d\d\+08:00\)")

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
        self.assertNotIn("x" * 1000, text)  # shortened
        self.assertIn("x" * 8000, detail)

    def test_in_chinese(self) -> None:
        client = boss()
        with translation.override("zh-hans"), held("a"):
            page = client.get(PAGE, headers={"accept-language": "zh-hans"})
        self.assertContains(page, "持有者")
        self.assertContains(page, "强制释放")


@override_settings(DISTLOCKS={**ALIASES, "down": {"BACKEND": DOWN}})
class StoreTests(TransactionTestCase):
    """The strip of the stores, and what is wrong with them."""

    def test_a_store_that_is_down_hides_no_other(self) -> None:
        client = boss()
        with held("a"):
            page = client.get(PAGE)
        self.assertContains(page, "a</bdi>")
        self.assertContains(page, "&lt;b&gt;refused&lt;/b&gt;")
        self.assertContains(page, "retry=down")
        self.assertContains(page, '<span class="dl-down-word" dir="auto">down is down</span>')
        self.assertContains(page, 'class="dl-store dl-up"', count=2)

    def test_requests_in_transactions_ask_all_stores_at_once_too(self) -> None:
        client = boss()
        site = admin.site.get_model_admin(HeldLock)
        hanging = {**ALIASES, "hanging": {"BACKEND": HANGING}}
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
        hanging = {**ALIASES, "hanging": {"BACKEND": HANGING}}
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
        self.assertEqual([each for each in inspection._late if each.alias == "hanging"], [])


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
