"""`make dashboard`, as a user runs it: over every store that is chosen, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from tests.hearing import hearing_signals
from tests.servers import chosen

ROOT = Path(__file__).resolve().parents[2]


def logged_in(address: str, password: str) -> OpenerDirector:
    """Return what opens pages for the user that was printed."""
    cookies = CookieJar()
    opener = build_opener(HTTPCookieProcessor(cookies))
    login = address.split("/django_distlock")[0] + "/login/"
    with opener.open(login, timeout=30) as page:
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
    assert token
    form = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": password}
    form["next"] = "/admin/"
    opener.open(login, urlencode(form).encode(), timeout=30).close()
    return opener


def listed(opener: OpenerDirector, address: str, query: dict[str, str]) -> bool:
    """Tell whether the page shows a lock that is like that."""
    with opener.open(f"{address}?{urlencode(query)}", timeout=30) as page:
        text = page.read().decode()
    if alias := query.get("alias"):
        assert f'<option value="{alias}"' in text
    # Not by its bar: a lock of ZooKeeper's has none, as it ends with its session.
    return bool(re.search(r'<tr role="row" data-key="(?!empty")', text))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the accounts of the servers may look into, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="distlock-board-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_it_shows_live_traffic_and_ends_by_ctrl_c(folder: Path) -> None:
    stores = list(dict.fromkeys(["sqlite", *chosen()]))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("SHOP_", "DJANGO_"))},
        "TMPDIR": str(folder),
    }
    said = folder / "said"
    with said.open("w") as output, hearing_signals():
        program = subprocess.Popen(
            [sys.executable, "-m", "testproject.dashboard", "--workers", "2", "--stores", *stores],
            cwd=ROOT, env=environment, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        end = time.monotonic() + 100
        while "Ctrl-C" not in said.read_text():
            assert program.poll() is None, said.read_text()
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.1)
        found = re.search(r"(http://\S+)\s+user admin, password (\S+)", said.read_text())
        assert found
        opener = logged_in(*found.groups())
        # A lock of each store, and one that a view holds for its user.
        wanted = [{"alias": alias} for alias in ("default", "version", *stores[1:])]
        wanted.append({"alias": "default", "q": "shop:orders admin"})
        wanted += [{"q": "catalogue"}, {"q": "partner-api"}]  # that several hold
        while wanted:
            assert time.monotonic() < end, f"{wanted}\n{said.read_text()}"
            time.sleep(0.2)
            wanted = [each for each in wanted if not listed(opener, found[1], each)]
        program.send_signal(signal.SIGINT)
        assert program.wait(40) == 0
    finally:
        if program.poll() is None:
            program.terminate()  # which ends what it started, unlike SIGKILL
            program.wait(40)
    assert "Ended." in said.read_text()
    assert [each.name for each in folder.iterdir()] == ["said"]
