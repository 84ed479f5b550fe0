"""The Locks page in a browser: the list, and how it refreshes itself."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LogIn
from tests.browser.tools import SHOTS, Holders, Site, refresh

HOSTILE = "<img src=x onerror=alert(1)>\"'\u202e\x00" + "x" * 3000


def names(page: Page) -> list[str]:
    """Return the names in the list, from top to bottom."""
    return page.locator(".dl-table .dl-name bdi").all_inner_texts()


def test_the_locks_of_every_store_are_listed(log_in: LogIn, holders: Holders) -> None:
    holders.hold("invoice:42", ttl=40)
    holders.hold("report", using="jobs")
    page = log_in()
    assert sorted(names(page)) == ["invoice:42", "report"]
    row = page.get_by_role("row").filter(has_text="report")
    expect(row).to_contain_text("jobs · redis")
    expect(row).to_contain_text("user: ada")
    expect(page.locator("[data-part=verdict]")).to_have_text("Nothing is stuck.")
    expect(page.locator(".dl-store")).to_have_count(3)
    # The bar counts down between two refreshes.
    left = page.get_by_role("row").filter(has_text="invoice:42").locator("[data-left]")
    expect(left).to_have_text(re.compile(r"^[23]\ds$"))
    before = left.inner_text()
    expect(left).not_to_have_text(before)
    page.screenshot(path=SHOTS / "light.png", full_page=True)


def test_filter_search_and_sort(log_in: LogIn, holders: Holders) -> None:
    for number in (2, 3, 1):
        holders.hold(f"invoice:{number}")
    holders.hold("report", using="jobs")
    page = log_in()
    page.get_by_label("Search").fill("invoice")
    page.get_by_label("Search").press("Enter")
    expect(page.locator("[data-part=found]")).to_have_text("3 of 4 locks")
    page.get_by_role("columnheader", name="Lock").get_by_role("link").click()
    expect(page.locator('[aria-sort="ascending"]')).to_have_text("Lock")
    assert names(page) == ["invoice:1", "invoice:2", "invoice:3"]
    page.get_by_role("columnheader", name="Lock").get_by_role("link").click()
    expect(page.locator('[aria-sort="descending"]')).to_have_text("Lock")
    assert names(page) == ["invoice:3", "invoice:2", "invoice:1"]
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Alias").select_option("jobs")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("[data-part=found]")).to_have_text("1 of 4 locks")
    assert names(page) == ["report"]


def test_a_refresh_keeps_place_selection_and_focus(log_in: LogIn, holders: Holders) -> None:
    leases = [holders.hold(f"n{number:02}") for number in range(30)]
    page = log_in(query="?o=name")
    box = page.get_by_role("checkbox", name="n20", exact=True)
    box.check()
    box.focus()
    link = page.get_by_role("link", name="n21", exact=True)
    marked = link.evaluate_handle("each => each")
    page.evaluate("scrollTo(0, 900)")
    assert page.evaluate("scrollY") > 300
    seen_at = box.bounding_box()["y"]  # type: ignore[index]
    holders.release(leases[25])
    holders.hold("n00a")
    refresh(page)
    expect(page.get_by_role("link", name="n00a", exact=True)).to_have_count(1)
    expect(page.get_by_role("link", name="n25", exact=True)).to_have_count(0)
    expect(page.locator("[data-part=rows] tr")).to_have_count(30)
    # A row more above: what was in sight stays where it was.
    assert abs(box.bounding_box()["y"] - seen_at) < 2  # type: ignore[index]
    expect(box).to_be_checked()
    expect(box).to_be_focused()
    expect(page.locator("[data-selected]")).to_have_text("1 selected")
    assert link.evaluate("(each, marked) => each === marked", marked)  # not made anew
    # With the row that has it the focus goes to a neighbour, and not to the top of the page.
    holders.release(leases[20])
    refresh(page)
    expect(box).to_have_count(0)
    assert page.evaluate("document.activeElement.closest('tr')?.innerText.includes('n21')")
    expect(page.get_by_role("button", name="Release selected…")).to_be_hidden()


def test_it_can_be_paused(log_in: LogIn, holders: Holders) -> None:
    page = log_in()
    page.get_by_label("Seconds between two refreshes").select_option("2")
    expect(page.locator("#distlock")).to_have_attribute("data-refreshed", re.compile("[1-9]"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("[data-live]")).to_have_text("Paused")
    holders.hold("new")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.clock.run_for(30_000)
    assert asked == []
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("link", name="new", exact=True)).to_be_visible()


def test_a_tab_that_nobody_looks_at_is_left_alone(log_in: LogIn) -> None:
    page = log_in()
    page.evaluate(
        """() => {
            window.waits = [];
            const plain = window.setTimeout;
            window.setTimeout = (work, wait) => {
                window.waits.push(wait);
                return plain(work, wait);
            };
            Object.defineProperty(document, "hidden", { get: () => window.away });
            window.away = true;
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    assert set(page.evaluate("window.waits")) == {60_000}
    page.evaluate("window.away = false")
    refresh(page)
    assert page.evaluate("window.waits.at(-1)") < 60_000


def test_hostile_names(log_in: LogIn, holders: Holders) -> None:
    holders.hold(HOSTILE, metadata={"</td>": "<script>alert(1)</script>"})
    page = log_in()
    refresh(page)
    [shown] = names(page)
    assert shown.startswith("<img src=x onerror=alert(1)>\"'\\u202e\\x00xxx")
    assert page.locator("#distlock img, #distlock script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name=shown, exact=True).click()
    expect(page.locator(".dl-facts")).to_contain_text("<script>alert(1)</script>")
    page.screenshot(path=SHOTS / "hostile.png")


def test_a_signed_out_tab_says_so(log_in: LogIn, the_site: Site) -> None:
    page = log_in("viewer")
    page.context.clear_cookies()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("[data-status]")).to_contain_text("You are signed out")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_on_a_phone(log_in: LogIn, holders: Holders, scheme: str) -> None:
    holders.hold("invoice:42", ttl=8)
    holders.hold("report/2026/november", using="jobs")
    small = {"width": 375, "height": 812}
    page = log_in(viewport=small, color_scheme=scheme, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    row = page.get_by_role("row").filter(has_text="report")
    expect(row.get_by_role("cell").first).to_be_visible()
    assert row.bounding_box()["height"] < 80  # type: ignore[index] # two lines
    assert row.bounding_box()["y"] < 812  # type: ignore[index] # seen without scrolling
    expect(page.get_by_label("Sort by")).to_be_hidden()
    page.screenshot(path=SHOTS / f"phone-{scheme}.png", full_page=True)
    page.get_by_text("More filters").click()
    page.get_by_label("Sort by").select_option("name")
    page.get_by_label("Alias").select_option("jobs")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("[data-part=found]")).to_have_text("1 of 2 locks")
    expect(page.get_by_label("Alias")).to_be_visible()


def test_how_much_is_seen_at_once(log_in: LogIn, holders: Holders) -> None:
    for number in range(14):
        holders.hold(f"invoice:{number:02}", using="jobs" if number % 2 else "orders")
    page = log_in(viewport={"width": 1440, "height": 900})
    boxes = [row.bounding_box() for row in page.locator("[data-part=rows] tr").all()]
    seen = [box for box in boxes if box is not None and box["y"] + box["height"] <= 900]
    assert len(seen) >= 9
    page.screenshot(path=SHOTS / "many.png")


def test_the_keyboard_leads_to_the_locks_at_once(log_in: LogIn, holders: Holders) -> None:
    """Past the stores, the filters and the buttons."""
    holders.hold("invoice:42")
    page = log_in()
    skip = page.get_by_role("link", name="Skip to the locks")
    skip.focus()
    box = skip.bounding_box()
    assert box is not None
    assert box["width"] > 50
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator(".dl-table :focus")).to_have_count(1)


def test_from_right_to_left(log_in: LogIn, holders: Holders) -> None:
    holders.hold("invoice:42")
    page = log_in()
    page.evaluate("document.documentElement.dir = 'rtl'")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    name = page.locator("[data-part=rows] .dl-name").bounding_box()
    holder = page.locator("[data-part=rows] .dl-holder").bounding_box()
    assert name is not None
    assert holder is not None
    assert name["x"] > holder["x"]
    page.screenshot(path=SHOTS / "rtl.png")


def test_in_the_dark(log_in: LogIn, holders: Holders) -> None:
    holders.hold("invoice:42", ttl=8)
    holders.hold("report", using="jobs")
    page = log_in(color_scheme="dark")
    page.get_by_role("checkbox", name="report", exact=True).check()
    colours = page.evaluate(
        """() => {
            const parts = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
            const light = (colour) => parts(colour).reduce((sum, each) => sum + each);
            const cell = document.querySelector(".dl-table tbody .dl-holder");
            const page = getComputedStyle(document.body).backgroundColor;
            return [light(getComputedStyle(cell).color), light(page)];
        }"""
    )
    assert colours[0] > 500 > 150 > colours[1]
    page.screenshot(path=SHOTS / "dark.png", full_page=True)
