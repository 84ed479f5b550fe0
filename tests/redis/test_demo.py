"""`manage.py demo` on Redis, and with the technique that is unsafe."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.servers import Redis
from tests.shop import SMALL, environment_of, program, ran


@pytest.fixture
def environment(server: Redis, tmp_path: Path) -> dict[str, str]:
    """The environment of a shop with tables of its own, on the Redis of this run."""
    found = environment_of(tmp_path, SHOP_REDIS=server.url())
    program(found, "manage.py", "migrate", "-v0")
    return found


def manage(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the shop."""
    return ran(environment, "manage.py", *words)


def test_the_demo_on_redis(environment: dict[str, str]) -> None:
    using = ("--using", "redis", "--using", "redis-transactions")
    done = manage(environment, "demo", *using, *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    runs = {run["alias"]: run for run in found["runs"]}
    assert list(runs) == [None, "redis", "redis-transactions"]
    for alias in ("redis", "redis-transactions"):
        assert (runs[alias]["orders"], runs[alias]["oversold"]) == (20, 0)
    assert [kill["alias"] for kill in found["kills"]] == ["redis", "redis-transactions"]


def test_what_is_unsafe_is_run_when_asked_for_and_said_to_be(environment: dict[str, str]) -> None:
    words = ("demo", "--using", "redis", *SMALL, "--no-kill")
    done = manage(environment, *words, "--technique", "getset", "--json")
    assert done.returncode == 0, done.stderr
    techniques = [run["technique"] for run in json.loads(done.stdout)["runs"]]
    assert techniques == ["none", "redis", "getset, UNSAFE"]
    shown = manage(environment, *words, "--technique", "getset")
    assert "getset, UNSAFE" in shown.stdout
    del environment["SHOP_REDIS"]
    refused = manage(environment, "demo", *SMALL, "--technique", "getset")
    assert refused.returncode == 1
    assert "SHOP_REDIS=redis://localhost:6379/0" in refused.stderr
