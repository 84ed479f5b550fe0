"""The tutorial is followed: files written, commands run, in order, with what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import pytest

from tests.backends.tools import soon
from tests.docs.pages import ROOT, Page
from tests.docs.test_examples import TUTORIAL
from tests.servers.base import free_port


class Reader:
    """Types commands in a folder; what they leave running ends with the reader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shells: list[subprocess.Popen[bytes]] = []

    def run(self, commands: str) -> str:
        """Run commands as in a terminal; return what they print."""
        environment = {key: value for key, value in os.environ.items() if "DJANGO" not in key}
        # The reader's python is that of a virtual environment with the package; here it is ours.
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        environment["PYTHONPATH"] = str(ROOT)
        # To files: a pipe would stay open as long as the background process lives.
        out, err = self.folder / "stdout", self.folder / "stderr"
        with out.open("w") as stdout, err.open("w") as stderr:
            shell = subprocess.Popen(
                ["bash", "-e", "-o", "pipefail", "-c", commands],
                cwd=self.folder,
                env=environment,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            self._shells.append(shell)
            code = shell.wait()
        assert code == 0, f"{commands}\n{out.read_text()}\n{err.read_text()}"
        return out.read_text()

    def end(self) -> None:
        """End what was left running in the background."""
        for shell in self._shells:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()


def the_page(reader: Reader, command: str) -> str:
    """Start the site, as the page says but on a port of our own; return its Locks page."""
    port = free_port()
    reader.run(f"{command.strip()} {port} --noreload > site.txt 2>&1 &")
    site = f"http://127.0.0.1:{port}/admin"
    assert soon(lambda: _answers(f"{site}/login/"), 60), (reader.folder / "site.txt").read_text()
    opener = build_opener(HTTPCookieProcessor())
    with opener.open(f"{site}/login/", timeout=30) as page:
        [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
    form = {"username": "you", "password": "lamp", "csrfmiddlewaretoken": token}
    opener.open(f"{site}/login/?next=/admin/", urlencode(form).encode(), timeout=30).close()
    with opener.open(f"{site}/django_distlock/heldlock/", timeout=30) as page:
        return str(page.read().decode())


def _answers(address: str) -> bool:
    try:
        urlopen(address, timeout=30).close()
    except OSError:
        return False
    return True


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty folder."""
    reader = Reader(tmp_path)
    yield reader
    reader.end()


def test_the_tutorial_leads_where_it_says(reader: Reader) -> None:
    """Do what the page says, and see what it shows."""
    blocks = Page(ROOT / TUTORIAL).blocks()
    seen = []
    for block, following in zip_longest(blocks, blocks[1:]):
        if block.language == "python":
            assert block.file, f"{TUTORIAL}:{block.line}: a block of the tutorial is a file"
            (reader.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.words == ("page",):
            assert "shop.product:1" in the_page(reader, block.text)
        elif block.language == "shell" and block.words != ("setup",):
            said = reader.run(block.text)
            if following is not None and following.words == ("output",):
                flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                shown = doctest.OutputChecker().check_output(following.text, said, flags)
                assert shown, f"{TUTORIAL}:{following.line} is not what was printed:\n{said}"
                seen.append(following)
    assert seen == [block for block in blocks if block.words == ("output",)]
