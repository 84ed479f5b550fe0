"""`manage.py runlocked` killed with SIGKILL: what no program can tell its command of."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from pathlib import Path

import pytest

from django_distlock import lock
from tests.backends.tools import soon
from tests.commands.test_runlocked import STORE
from tests.commands.tools import gone, line, started

SHELL = "echo $$; echo $DISTLOCK_FENCING_TOKEN; exec sleep 60"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has that")
def test_the_command_ends_with_it(name: str) -> None:
    assert shutil.which("setpriv")
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "30", "--shell")
    with started(*arguments, "--", SHELL) as running:
        command, _ = int(line(running)), line(running)
        running.kill()
        running.wait(60)
        assert soon(lambda: gone(command), 30)


def test_where_it_goes_on_it_has_the_older_token(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of any shell that is killed; its writes can be told from the next holder's."""
    other = tmp_path / "setpriv"  # one that does not know the option, as that of BusyBox
    other.write_text("#!/bin/sh\necho Usage: setpriv\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    arguments = ("runlocked", name, "--using", STORE, "--ttl", "0.9", "--shell")
    with started(*arguments, "--", SHELL) as running:
        command, token = int(line(running)), int(line(running))
        try:
            running.kill()
            running.wait(60)
            with lock(name, using=STORE, wait=30) as lease:
                assert not gone(command)
                assert lease.fencing_token > token
        finally:
            os.kill(command, signal.SIGKILL)
