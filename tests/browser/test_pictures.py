"""The Locks page in the states that the documentation shows, with ten stores.

Kept by ``DISTLOCK_TEST_PICTURES=docs/pictures python -m pytest tests/browser/test_pictures.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from playwright.sync_api import Browser, Page, expect

from django_distlock import Lease, Lock
from django_distlock.models import LockRow
from tests.browser.site.serve import PASSWORD
from tests.browser.tools import PICTURES, Holders, Site, same_aliases, site
from tests.servers import Redis
from tests.servers.base import HOST, free_port

NAMES = ("jobs", "mail", "search", "billing", "imports", "reports", "webhooks", "sessions", "stock")
DOWN = ("search", "reports", "webhooks")
MANY = 10_000
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
HELD = [  # name, alias, seconds held, seconds left, ttl; those in Redis have just been taken
    ("invoice:42", "orders", 4, 27, 30),
    ("invoice:57", "orders", 11, 21, 30),
    ("import:acme", "orders", 754, 25, 60),
    ("report:2026-11", "orders", 95, 51, 60),
    ("warehouse:berlin", "orders", 2, 28, 30),
    ("payout:1007", "billing", 0, 0, 30),
    ("payout:1008", "billing", 0, 0, 30),
    ("newsletter", "mail", 0, 0, 60),
    ("thumbnail:8812", "jobs", 0, 0, 30),
    ("thumbnail:8813", "jobs", 0, 0, 30),
    ("feed:partners", "imports", 0, 0, 300),
    ("cart:55", "sessions", 0, 0, 30),
]
PROGRAM = """
def {function}(guard):
    return guard.acquire()
"""


def program(line: int, function: str) -> Callable[[Lock], Lease]:
    """Return a function that takes a lock at a place in a program."""
    code = "\n" * line + PROGRAM.format(function=function)
    found: dict[str, Any] = {}
    exec(compile(code, f"/srv/shop/shop/{function}ing.py", "exec"), found)
    made: Callable[[Lock], Lease] = found[function]
    return made


PROGRAMS = [program(33, "pay"), program(71, "load"), program(118, "send")]


@contextmanager
def shop(monkeypatch: pytest.MonkeyPatch, stores: dict[str, str]) -> Iterator[Holders]:
    """Hold what a shop holds, as if by programs of its own on hosts of its own."""
    some = Holders()
    with same_aliases(stores):
        try:
            for number, (name, alias, age, left, ttl) in enumerate(HELD):
                monkeypatch.setattr("django_distlock.core.holder._HOST", f"web-{number % 3 + 1}")
                by = PROGRAMS[number % 3]
                some.hold(name, alias, by=by, ttl=ttl, metadata={"order": 1000 + number})
                if alias == "orders":
                    some.do(partial(_make_older, name, age, ttl - left))
            yield some
        finally:
            some.close()


def _make_older(name: str, age: int, less: int) -> None:
    """Have a lock in the table be held for ``age`` seconds, with ``less`` of its ttl left."""
    changed = (
        LockRow.objects.using("sqlite")
        .filter(name=name)
        .update(acquired=F("acquired") - age * 1_000_000, expires=F("expires") - less * 1_000_000)
    )
    assert changed == 1


@pytest.fixture
def look(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Give a function that opens the Locks page of a site."""
    PICTURES.mkdir(exist_ok=True)
    with ExitStack() as stack:

        def open_page(running: Site, **options: Any) -> Page:
            context = browser.new_context(**{"viewport": DESKTOP, **options})
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(running.locks)
            page.fill("#id_username", "boss")
            page.fill("#id_password", PASSWORD)
            page.press("#id_password", "Enter")
            page.wait_for_selector("#distlock")
            return page

        yield open_page


def keep(page: Page, name: str, **options: Any) -> None:
    """Make a picture of what is seen."""
    page.mouse.move(0, 0)
    page.screenshot(path=Path(PICTURES, f"locks-{name}.png"), **options)


def rows_seen(page: Page, height: int) -> int:
    """Return how many locks are seen whole without scrolling."""
    boxes = [row.bounding_box() for row in page.locator("[data-part=rows] tr").all()]
    return sum(1 for box in boxes if box is not None and box["y"] + box["height"] <= height)


def test_ten_stores(
    look: Callable[..., Page], nightly: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: nightly.url(number) for number, name in enumerate(NAMES)}
    with site(stores) as running, shop(monkeypatch, stores):
        page = look(running)
        expect(page.locator(".dl-store")).to_have_count(10)
        expect(page.locator("[data-part=found]")).to_have_text(f"{len(HELD)} locks are held")
        expect(page.locator("[data-part=rows] tr").first).to_contain_text("import:acme")
        assert rows_seen(page, 900) >= 9
        keep(page, "light")
        page.get_by_role("link", name="Release… import:acme").click()
        keep(page, "release")
        dark = look(running, color_scheme="dark")
        keep(dark, "dark")
        phone = look(running, viewport=PHONE, is_mobile=True, has_touch=True)
        assert rows_seen(phone, 844) >= 1
        keep(phone, "phone")
        arabic = look(running, locale="ar")
        assert arabic.evaluate("document.documentElement.dir") == "rtl"
        for each in (page, dark, phone, arabic):
            assert each.evaluate("document.documentElement.scrollWidth <= innerWidth")
        keep(arabic, "rtl")


def test_three_of_ten_stores_are_down(
    look: Callable[..., Page], nightly: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = {name: nightly.url(n) for n, name in enumerate(NAMES) if name not in DOWN}
    down = {name: f"redis://{HOST}:{free_port()}/0" for name in DOWN}
    with site(up | down) as running, shop(monkeypatch, up):
        page = look(running)
        said = "12 locks in 7 of 10 stores; 3 could not be read"
        expect(page.locator("[data-part=found]")).to_have_text(said)
        expect(page.locator(".dl-down")).to_have_count(3)
        keep(page, "down")


def test_nothing_is_held(look: Callable[..., Page]) -> None:
    with site({}) as running:
        page = look(running)
        expect(page.locator(".dl-empty")).to_contain_text('with lock("invoice:42")')
        expect(page.get_by_role("link", name="The first lock, step by step")).to_be_visible()
        keep(page, "empty")


@pytest.mark.timeout(400)
def test_ten_thousand_locks(
    look: Callable[..., Page], nightly: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.core.holder._HOST", "web-1")
    stores = {"jobs": nightly.url()}
    some = Holders()
    with site(stores) as running, same_aliases(stores):
        try:
            for start in range(0, MANY, 500):
                names = [f"thumbnail:{number:05}" for number in range(start, start + 500)]
                some.hold_together(names, "jobs", by=PROGRAMS[1], ttl=600, renew=False, wait=0)
            page = look(running)
            expect(page.locator("[data-part=found]")).to_have_text("10,000 locks are held")
            expect(page.locator("[data-part=rows] tr")).to_have_count(50)
            expect(page.locator(".dl-pages")).to_contain_text("…")
            keep(page, "many")
            page.get_by_role("link", name="Page 200").click()
            expect(page.locator(".dl-pages [aria-current=page]")).to_contain_text("200")
            page.get_by_label("Search").fill("thumbnail:09999")
            page.get_by_role("button", name="Filter").click()
            expect(page.locator("[data-part=rows] tr")).to_have_count(1)
        finally:
            some.close()
