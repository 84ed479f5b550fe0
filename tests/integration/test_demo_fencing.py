"""`manage.py demo_fencing`, run as a user runs it: real processes, stopped by real signals."""

from __future__ import annotations

import json

import pytest

from testproject.settings import SQLITE
from tests.integration import new_database
from tests.integration.shops import Shop
from tests.servers import databases


@pytest.fixture(scope="module", params=databases()[:2])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Return a shop with data in it, on SQLite and on a server."""
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("fencing") / "shop.sqlite3"
        return Shop(SQLITE | {"NAME": str(path)}).migrated()
    return Shop(new_database(request.param, "fencing")).migrated()


def test_a_stopped_worker_spoils_the_order_unless_it_is_fenced(shop: Shop) -> None:
    before = shop.state()
    done = shop.manage("demo_fencing", "--json")
    assert done.returncode == 0, done.stderr
    plain, fenced = json.loads(done.stdout)["rounds"]
    for each in (plain, fenced):
        assert each["stale_token"] < each["next_token"]
    # Without it the lock alone does not help: that is why it is there.
    assert (plain["fenced"], plain["outcome"]) == (False, "written")
    assert plain["parcel"] == "parcel of worker 1"
    assert "The lease is lost" in plain["said"]
    assert (fenced["fenced"], fenced["outcome"]) == (True, "refused")
    assert fenced["parcel"] == "parcel of worker 2"
    assert f"a newer holder (token {fenced['next_token']}," in fenced["said"]
    assert shop.state() == before
    assert shop.wait_for_no_processes() == 0


def test_it_tells_what_happens(shop: Shop) -> None:
    done = shop.manage("demo_fencing")
    assert done.returncode == 0, done.stderr
    for words in ("SIGSTOP", "SIGCONT", "SPOILED", "its UPDATE was refused", "shop.Order"):
        assert words in done.stdout


def test_an_alias_that_is_not_there(shop: Shop) -> None:
    done = shop.manage("demo_fencing", "--using", "nowhere")
    assert done.returncode == 1
    assert "No such alias in DISTLOCKS: nowhere" in done.stderr
