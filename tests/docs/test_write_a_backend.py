"""The backends that the how-to writes pass the contract suite, as the how-to says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connections

from tests import etcd_servers, mysql_servers
from tests.docs.pages import ROOT, Page
from tests.docs.run_page import PROJECT
from tests.servers import chosen

PAGE = Page(ROOT / "docs" / "howto" / "write-a-backend.md")


ON_FILES = ("conftest.py", "file_backend.py", "test_file_backend.py")
ON_MYSQL = ("conftest.py", "getlock_backend.py", "test_getlock_backend.py")
IN_ETCD = ("conftest.py", "queue_backend.py", "test_queue_backend.py")


@pytest.mark.timeout(900)
def test_the_backend_on_files_keeps_the_contract(tmp_path: Path) -> None:
    """Write the page's files, and run the suite as a reader would."""
    assert passed(tmp_path, ON_FILES) > 150


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", [each for each in ("mariadb", "mysql") if each in chosen()])
def test_the_backend_by_get_lock_keeps_the_contract(tmp_path: Path, store: str) -> None:
    """With the page's setting, in a project whose database is a server.

    On MySQL, which answers as MariaDB does, in one mode.
    """
    words: tuple[str, ...] = ()
    if store == "mysql":
        mysql_servers.running()
        words = ("-k", "not async")
    entry = {
        key: connections[store].settings_dict[key]
        for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    }
    entry["OPTIONS"] = {"connect_timeout": 5, "read_timeout": 5}
    assert passed(tmp_path, ON_MYSQL, f"DATABASES = {{'default': {entry!r}}}", words=words) > 80


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", [each for each in ("etcd",) if each in chosen()])
def test_the_queue_in_etcd_keeps_the_contract(tmp_path: Path, store: str) -> None:
    """On a server, of which the page's setting says where it would be by itself."""
    where = f"DISTLOCKS['queue']['LOCATION'] = {etcd_servers.NODE[0].url!r}"
    assert passed(tmp_path, IN_ETCD, after=where) > 150


def passed(
    folder: Path,
    files: tuple[str, ...],
    settings: str = "",
    after: str = "",
    *,
    words: tuple[str, ...] = (),
) -> int:
    """Return how many tests of the suite have passed; none has failed, none was skipped."""
    blocks = [block for block in PAGE.blocks() if not block.hidden]
    for block in blocks:
        if block.file in files:
            (folder / str(block.file)).write_text(block.text, encoding="utf-8")
    shown = [block.text for block in blocks if block.text.startswith("DISTLOCKS")]
    lines = ["from example_settings import *", settings, *shown]
    (folder / "settings.py").write_text("\n".join([*lines, after]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": os.pathsep.join(map(str, (folder, PROJECT, ROOT))),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=890,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    [number] = re.findall(r"^(\d+) passed", done.stdout, re.M)
    return int(number)
