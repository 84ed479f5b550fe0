"""The Locks page in a browser within themes of the admin."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site.serve import PASSWORD
from tests.browser.tools import SHOTS, Holders, Site, refresh, site


@pytest.mark.parametrize("theme", ["unfold", "grappelli"])
def test_it_works_in_a_theme(
    theme: str, browser: Browser, the_site: Site, holders: Holders
) -> None:
    holders.hold("invoice:42")
    holders.hold("report")
    with site({}, theme=theme) as themed, browser.new_context(color_scheme="light") as context:
        page = context.new_page()
        page.goto(themed.locks)
        page.fill("#id_username", "boss")
        page.fill("#id_password", PASSWORD)
        page.press("#id_password", "Enter")
        page.wait_for_selector("#distlock")
        refresh(page)
        expect(page.locator(".dl-store")).to_be_visible()
        expect(page.locator(".dl-table tbody tr")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=SHOTS / f"{theme}.png", full_page=True)
        page.get_by_role("link", name="Release… invoice:42").click()
        page.get_by_role("button", name="Release", exact=True).click()
        expect(page.locator(".dl-table tbody tr")).to_have_count(1)
