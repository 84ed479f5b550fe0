"""The Locks page under Django's own test runner, on a site with the admin, plain and in themes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import chosen

ROOT = Path(__file__).resolve().parents[2]


def run(*labels: str, theme: str = "") -> None:
    """Run tests of the suite as a user's test runner would."""
    site = {"file": ":memory:", "databases": {}, "distlocks": {}, "theme": theme}
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.browser.site.settings",
        "DISTLOCK_BROWSER_SITE": json.dumps(site),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "test", *labels],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stderr


def test_the_page() -> None:
    run("tests.admin.suite", "tests.admin.suite_releasing")


def test_no_query_for_each_row() -> None:
    run("tests.admin.suite_counting.TableTests")


@pytest.mark.parametrize("store", [store for store in chosen() if store == "redis"])
def test_no_round_trip_for_each_row(store: str) -> None:
    run(f"tests.admin.suite_counting.{store.capitalize()}Tests")


@pytest.mark.parametrize("store", [store for store in chosen() if store == "redis"])
def test_a_store_that_stops_at_the_release(store: str) -> None:
    run(f"tests.admin.suite_stopping.{store.capitalize()}Tests")


@pytest.mark.parametrize("theme", ["unfold", "grappelli"])
def test_in_a_theme(theme: str) -> None:
    run("tests.admin.suite.ListTests", "tests.admin.suite_releasing.ReleaseTests", theme=theme)
