"""Running commands: in this process, and in one of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command

from django_distlock.backends.locmem import LocMemBackend
from django_distlock.core.values import LockInfo
from tests import mysql_servers
from tests.hearing import hearing_signals

COMMAND = [sys.executable, "-W", "error", "-m", "django"]
LIMIT = 120  # seconds; a program takes ten to start on a machine with much else to do


class NoTokens(LocMemBackend):
    """A store that shows no fencing tokens."""

    supports_fencing = False

    def inspect(self, name: str) -> LockInfo | None:
        info = super().inspect(name)
        return None if info is None else replace(info, fencing_token=None)


class Ran:
    """What a run of a command in this process printed, and how it ended."""

    def __init__(self, command: str, *arguments: str, **options: Any) -> None:
        out, err = StringIO(), StringIO()
        self.failed, self.code = "", 0
        try:
            call_command(command, *arguments, stdout=out, stderr=err, no_color=True, **options)
        except CommandError as error:
            self.failed, self.code = str(error), error.returncode
        except SystemExit as error:
            self.code = int(error.code or 0)
        self.out, self.err = out.getvalue(), err.getvalue()


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, to its end."""
    return subprocess.run(
        [*COMMAND, *words], input=stdin, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a process of its own while the block runs."""
    pipe = subprocess.PIPE
    with hearing_signals():
        process = subprocess.Popen(
            [*COMMAND, *words],
            env=mysql_servers.environment(),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints; fail with its errors when there is none."""
    assert process.stdout is not None
    assert process.stderr is not None
    said = process.stdout.readline()
    assert said, process.stderr.read()
    return said.rstrip("\n")


def end(process: subprocess.Popen[str], stdin: str = "") -> tuple[int, str, str]:
    """Wait for the end of a process; return its exit code and what it printed last."""
    out, err = process.communicate(stdin, timeout=LIMIT)
    return process.returncode, out, err


def _stat(pid: int) -> list[str]:
    """Return what /proc tells of a process, from its state on (see proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def gone(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody has waited for yet has."""
    try:
        return _stat(pid)[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def catches(pid: int, number: int) -> bool:
    """Tell whether a process has a handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    [mask] = [row.split()[1] for row in status.splitlines() if row.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)


def rests(pid: int) -> bool:
    """Tell whether a process sleeps for 0.3 s, but for a tenth of it: it has begun to wait."""
    seen = [_stat(pid)]
    for _ in range(3):
        time.sleep(0.1)
        seen.append(_stat(pid))
    # The state; the ticks, of 10 ms, of the program and of the system.
    first, *_, last = [sum(map(int, each[11:13])) for each in seen]
    return all(each[0] == "S" for each in seen) and last - first <= 3
