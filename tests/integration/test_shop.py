"""The example shop, with its own test-suite, as `manage.py test` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration import new_database
from tests.servers import databases

IN_MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
ROOT = Path(__file__).resolve().parents[2]


def manage(*words: str, database: dict[str, Any] | None = None) -> str:
    """Run `manage.py` with the shop's settings and return what it said."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))}
    if database is not None:
        env["SHOP_DATABASE"] = json.dumps(database)
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *words],
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("store", databases())
def test_the_shops_own_tests_pass(store: str) -> None:
    database = None if store == "sqlite" else new_database(store, "shop")
    assert "\nOK" in manage("test", "testproject.shop", "--noinput", database=database)


def test_the_models_and_the_migrations_agree() -> None:
    words = ("makemigrations", "shop", "--check", "--dry-run")
    assert "No changes detected" in manage(*words, database=IN_MEMORY)


def test_the_checks_find_nothing() -> None:
    assert "no issues" in manage("check")
