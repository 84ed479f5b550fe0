"""The site, the browser, and who holds the locks that it shows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.browser.site.serve import PASSWORD
from tests.browser.tools import SHOTS, Holders, Site, same_aliases, site
from tests.conftest import REDIS
from tests.servers import Redis, chosen

# The browser is a Debian package, and so are the servers; a run without any leaves both out.
collect_ignore_glob = [] if "redis" in chosen() else ["test_*.py"]

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

LogIn = Callable[..., Page]


@pytest.fixture(scope="package")
def nightly() -> Iterator[Redis]:
    """A Redis that tests may stop."""
    with Redis(persistent=False) as server:
        yield server


@pytest.fixture(scope="package")
def the_site(nightly: Redis) -> Iterator[Site]:
    """The site, and its aliases in this process."""
    redis = {"jobs": REDIS[0].url(), "nightly": nightly.url()}
    with same_aliases(redis), site(redis, limit=2.0) as running:
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, without a window."""
    SHOTS.mkdir(exist_ok=True)
    expect.set_options(timeout=60_000)
    with sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=CHROMIUM, args=ARGUMENTS, headless=True, timeout=60_000
        )
        yield running
        running.close()


@pytest.fixture
def holders(the_site: Site) -> Iterator[Holders]:
    """Who holds locks; nobody does at the end."""
    some = Holders()
    yield some
    some.close()


@pytest.fixture(scope="package")
def cookies() -> dict[str, list[object]]:
    """The sessions of the users that have logged in before."""
    return {}


def _listen(complaints: list[str], allowed: tuple[str, ...], said: ConsoleMessage) -> None:
    if not any(word in said.text for word in allowed):
        complaints.append(said.text)


@pytest.fixture
def log_in(browser: Browser, the_site: Site, cookies: dict[str, list[object]]) -> Iterator[LogIn]:
    """Give a function that opens the Locks page for a user; complaints of the page are failures."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def open_page(
            user: str = "boss", query: str = "", *, allowed: tuple[str, ...] = (), **options: object
        ) -> Page:
            context = browser.new_context(**options)  # type: ignore[arg-type]
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.on("console", partial(_listen, complaints, allowed))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            _log_in(context, page, user)
            page.goto(the_site.locks + query)
            return page

        def _log_in(context: BrowserContext, page: Page, user: str) -> None:
            if user in cookies:
                context.add_cookies(cookies[user])  # type: ignore[arg-type]
                return
            page.goto(the_site.url)
            page.fill("#id_username", user)
            page.fill("#id_password", PASSWORD)
            page.press("#id_password", "Enter")
            page.wait_for_selector("#user-tools")
            cookies[user] = list(context.cookies())

        yield open_page
    assert complaints == []
