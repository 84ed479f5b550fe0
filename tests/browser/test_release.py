"""The Locks page in a browser: releasing, permissions, and stores that are down."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from django_distlock import LeaseLostError
from tests.browser.conftest import LogIn
from tests.browser.tools import SHOTS, Holders, Site, refresh
from tests.servers import Redis


def test_release_with_confirmation(log_in: LogIn, holders: Holders) -> None:
    lease = holders.hold("invoice:42")
    holders.hold("report", using="jobs")
    page = log_in(query="?q=invoice")
    page.get_by_role("link", name="Release… invoice:42").click()
    expect(page.get_by_role("heading", name="Release invoice:42?")).to_be_visible()
    left = page.locator(".dl-now [data-left]")
    before = left.inner_text()
    expect(left).not_to_have_text(before)  # it counts down
    expect(page.locator(".dl-facts")).to_contain_text("worker_0")
    expect(page.locator(".dl-facts")).to_contain_text(str(lease.fencing_token))
    page.screenshot(path=SHOTS / "confirmation.png", full_page=True)
    page.get_by_role("button", name="Release", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("Released invoice:42 in orders.")
    assert page.url.endswith("?q=invoice")
    expect(page.locator(".dl-empty")).to_be_visible()
    with pytest.raises(LeaseLostError):
        holders.do(lease.renew)
    page.get_by_role("link", name="Forced releases").last.click()
    expect(page.locator("#result_list tbody tr").first).to_contain_text("boss")
    page.screenshot(path=SHOTS / "history.png", full_page=True)


def test_several_by_the_keyboard_alone(log_in: LogIn, holders: Holders) -> None:
    for name in ("a", "b", "c"):
        holders.hold(name, using="jobs")
    page = log_in(query="?o=name")
    page.get_by_role("button", name="Pause").focus()
    everything = page.get_by_role("checkbox", name="Select all on this page")
    for _ in range(3):
        page.keyboard.press("Tab")
        if everything.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("Space")
    expect(page.locator("[data-selected]")).to_have_text("3 selected")
    page.get_by_role("checkbox", name="b", exact=True).uncheck()
    page.get_by_role("button", name="Release selected…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Release these 2 locks?")).to_be_visible()
    expect(page.locator(".dl-table .dl-name bdi")).to_have_text(["a", "c"])
    page.get_by_role("button", name="Release", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist li")).to_have_count(2)
    expect(page.locator(".dl-table .dl-name bdi")).to_have_text(["b"])


def test_a_newer_holder_is_not_broken(log_in: LogIn, holders: Holders) -> None:
    first = holders.hold("a")
    page = log_in()
    page.get_by_role("link", name="Release… a").click()
    holders.release(first)
    second = holders.hold("a")
    page.get_by_role("button", name="Release", exact=True).click()
    expect(page.locator(".messagelist")).to_contain_text("Not released")
    holders.do(second.renew)
    expect(page.get_by_role("link", name="a", exact=True)).to_be_visible()


def test_permission_denied(log_in: LogIn, holders: Holders, the_site: Site) -> None:
    holders.hold("a")
    page = log_in("viewer")
    expect(page.get_by_role("link", name="a", exact=True)).to_be_visible()
    assert page.get_by_role("checkbox").count() == 0
    assert page.get_by_role("link", name=re.compile("Release")).count() == 0
    answer = page.context.request.get(f"{the_site.locks}release/")
    assert answer.status == 403
    clerk = log_in("clerk", query="", allowed=("403",))
    expect(clerk.locator("body")).to_contain_text("403")


def test_a_store_that_hangs_hides_no_other(log_in: LogIn, holders: Holders, nightly: Redis) -> None:
    holders.hold("a")
    page = log_in()
    # Not by itself in between: it is the link that is tried.
    page.get_by_label("Seconds between two refreshes").select_option("60")
    card = page.locator('.dl-store[data-key="nightly"]')
    expect(card).to_have_class(re.compile("dl-up"))
    nightly.pause()
    try:
        refresh(page)
        expect(card).to_have_class(re.compile("dl-down"))
        expect(page.locator("[data-live]")).to_have_text("nightly is down")
        expect(page.get_by_role("link", name="a", exact=True)).to_be_visible()
        page.screenshot(path=SHOTS / "store-hangs.png", full_page=True)
    finally:
        nightly.resume()
    page.get_by_role("link", name="Try nightly again").click()
    expect(card).to_have_class(re.compile("dl-up"))
    expect(page.locator("[data-live]")).to_have_text("nightly answers again")


def test_a_store_that_is_gone(log_in: LogIn, nightly: Redis) -> None:
    page = log_in()
    nightly.kill()
    try:
        refresh(page)
        expect(page.locator('.dl-store[data-key="nightly"]')).to_contain_text("Down.")
        expect(page.locator(".dl-error")).not_to_contain_text("reachable?")  # the name of our probe
        page.screenshot(path=SHOTS / "store-down.png", full_page=True)
    finally:
        nightly.start()
    refresh(page)
    expect(page.locator('.dl-store[data-key="nightly"]')).to_have_class(re.compile("dl-up"))
