"""What the tests in the browser share: the site, who holds locks, and the pages."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections
from playwright.sync_api import Page

from django_distlock import Lease, Leases, Lock, lock, lock_all
from tests.backends.tools import TABLE, lock_alias
from tests.servers import ServerError
from tests.servers.base import HOST, free_port

ROOT = Path(__file__).resolve().parents[2]
SHOTS = Path(__file__).resolve().parent / "screenshots"
PICTURES = Path(os.environ.get("DISTLOCK_TEST_PICTURES", SHOTS)).resolve()
"""Where those go that the documentation has; it is ``docs/pictures`` when they are to be kept."""
REDIS = "django_distlock.backends.redis.RedisBackend"
TABLE_ALIAS = "orders"
PREFIX = "browser"
"""Of the names, so that nothing is seen that another test has left."""

T = TypeVar("T")


class Holders:
    """Holds locks on a thread of its own: the browser's driver runs an event loop on this one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._leases: list[Lease] = []
        self._groups: list[Leases] = []

    def do(self, work: Callable[[], T]) -> T:
        """Do something on the thread."""
        return self._thread.submit(work).result(60)

    def hold(
        self,
        name: str,
        using: str = TABLE_ALIAS,
        *,
        by: Callable[[Lock], Lease | None] = Lock.acquire,
        **options: Any,
    ) -> Lease:
        """Take a lock, ``by`` a function whose place is shown."""
        given = {"ttl": 300, "wait": 0, "metadata": {"user": "ada"}, **options}
        guard: Lock = lock(name, using=using, **given)
        lease = self.do(partial(by, guard))
        assert lease is not None
        self._leases.append(lease)
        return lease

    def hold_together(
        self, names: Sequence[str], using: str, *, by: Callable[[Any], Any], **options: Any
    ) -> None:
        """Take many locks at once, ``by`` a function whose place is shown."""
        self._groups.append(self.do(partial(by, lock_all(*names, using=using, **options))))

    def release(self, *leases: Lease) -> None:
        """Free locks; what was broken meanwhile is no more to be freed."""

        def free() -> None:
            for lease in leases:
                with contextlib.suppress(Exception):
                    lease.release()

        self.do(free)
        self._leases = [each for each in self._leases if each not in leases]

    def close(self) -> None:
        """Free all locks and end the thread."""
        self.release(*self._leases)
        for leases in self._groups:
            self.do(leases.release)
        self.do(connections.close_all)
        self._thread.shutdown()


def refresh(page: Page) -> None:
    """Have the page refresh itself at once, as it does when somebody comes back to its tab."""
    root = page.locator("#distlock")
    before = int(root.get_attribute("data-refreshed") or 0)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function(
        "before => Number(document.getElementById('distlock').dataset.refreshed ?? 0) > before",
        arg=before,
    )


class Site:
    """A running site."""

    def __init__(self, port: int) -> None:
        self.url = f"http://{HOST}:{port}/admin/"
        self.locks = f"{self.url}django_distlock/heldlock/"


@contextmanager
def site(redis: dict[str, str], *, theme: str = "", limit: float = 20.0) -> Iterator[Site]:
    """Run the site over the locks in SQLite and in the servers of these URLs.

    ``limit`` is the seconds that the stores have for their answers.
    """
    databases = {"locks": json.loads(os.environ["DISTLOCK_TEST_DATABASES"])["sqlite"]}
    aliases: dict[str, Any] = {TABLE_ALIAS: {"BACKEND": TABLE, "LOCATION": "locks"}}
    for alias, url in redis.items():
        aliases[alias] = {"BACKEND": REDIS, "LOCATION": url}
    aliases = {alias: {**entry, "PREFIX": PREFIX} for alias, entry in aliases.items()}
    with tempfile.TemporaryDirectory(prefix="distlock-site-") as folder:
        facts = {"file": f"{folder}/site.sqlite3", "databases": databases, "distlocks": aliases}
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.browser.site.settings",
            "DISTLOCK_BROWSER_SITE": json.dumps({**facts, "theme": theme, "limit": limit}),
        }
        port = free_port()
        with Path(folder, "site.log").open("w") as log:
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.browser.site.serve", str(port)],
                env=environment,
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
            try:
                _wait(port, Path(folder, "site.log"))
                yield Site(port)
            finally:
                server.terminate()
                server.wait(20)


def _wait(port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1.0):
            return
        time.sleep(0.05)
    raise ServerError(f"The site does not answer: {log.read_text()}")


@contextmanager
def same_aliases(redis: dict[str, str]) -> Iterator[None]:
    """Have the aliases of the site in this process, too."""
    with ExitStack() as stack:
        stack.enter_context(lock_alias(TABLE_ALIAS, LOCATION="sqlite", PREFIX=PREFIX))
        for alias, url in redis.items():
            stack.enter_context(lock_alias(alias, BACKEND=REDIS, LOCATION=url, PREFIX=PREFIX))
        yield
