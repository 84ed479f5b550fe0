"""What the charts of the Locks page begin with; run by `test_page` on a site with the admin."""

from __future__ import annotations

import json
import re
from html import unescape
from unittest import mock

from django.test import Client, SimpleTestCase, TransactionTestCase, override_settings

from django_distlock.admin import page
from django_distlock.admin.samples import EVERY, KEPT, Samples
from tests.admin.tools import ALIASES, PAGE, boss, held


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class SamplesTests(SimpleTestCase):
    """What a process keeps."""

    def test_each_has_its_age_and_those_too_near_are_left_out(self) -> None:
        clock = Clock()
        samples = Samples(clock)
        self.assertEqual(samples.add(1, None), [])
        clock.now += EVERY - 0.5
        self.assertEqual(samples.add(2, 5), [(EVERY - 0.5, 1, None)])
        clock.now += 0.5
        self.assertEqual(samples.add(3, 5), [(EVERY, 1, None)])
        clock.now += 1
        self.assertEqual(samples.add(4, 6), [(EVERY + 1, 1, None), (1, 3, 5)])

    def test_only_the_last_minutes_are_kept(self) -> None:
        clock = Clock()
        samples = Samples(clock)
        for number in range(1000):
            samples.add(number, 0)
            clock.now += 1.5
        seen = samples.add(1, 0)
        self.assertLessEqual(len(seen), KEPT / EVERY)
        self.assertGreater(len(seen), 100)
        self.assertLess(seen[0][0], KEPT)
        clock.now += KEPT
        self.assertEqual(samples.add(1, 0), [])


@override_settings(DISTLOCKS=ALIASES)
class ChartTests(TransactionTestCase):
    """What the page is sent."""

    def _told(self, client: Client, path: str = "") -> list[list[float | None]]:
        text = client.get(f"{PAGE}{path}").content.decode()
        (told,) = re.findall(r'data-samples="([^"]*)"', text)
        return list(json.loads(unescape(told)))

    def test_pages_and_refreshes_count_for_the_next_page(self) -> None:
        client, clock = boss(), Clock()
        with mock.patch.object(page, "samples", Samples(clock)):
            with held("a", "b"):
                self.assertEqual(self._told(client), [])
                clock.now += 5
                client.get(f"{PAGE}refresh/?q=a")  # what is filtered out is held all the same
            clock.now += 5
            self.assertEqual(self._told(client, "?q=a"), [[10, 2, None], [5, 2, None]])
            clock.now += 2 * KEPT
            self.assertEqual(self._told(client), [])
