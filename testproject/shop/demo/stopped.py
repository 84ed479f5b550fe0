"""A packer is stopped past its ttl, another one packs the order, and the first goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from django.conf import settings

from testproject.shop.models import Order

from .crew import POLL_SECONDS, DemoError
from .packer import TTL_SECONDS
from .stock import put_on_sale

LIMIT_SECONDS = 60
FIRST, SECOND = "parcel of worker 1", "parcel of worker 2"


@dataclass(frozen=True, slots=True)
class Round:
    """What came of it, with a fence or without."""

    fenced: bool
    stale_token: int
    next_token: int
    outcome: str  # of the stale worker: written or refused
    said: str  # the error that the stale worker was given
    parcel: str  # what the order says at the end

    @property
    def spoiled(self) -> bool:
        """Whether the order says what the stale worker wrote."""
        return self.parcel != SECOND

    @property
    def sound(self) -> bool:
        """Whether it went as it has to: with a fence the stale worker is refused."""
        return not self.fenced or (self.outcome == "refused" and not self.spoiled)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def run_round(demo: str, alias: str, *, fenced: bool, say: Callable[[str], object]) -> Round:
    """Run two packers against each other, and return what the order says at the end."""
    order = Order.objects.create(product=put_on_sale(demo, 1), buyer="demo")
    how = "fenced" if fenced else "unfenced"
    first = _start(order.pk, FIRST, alias, how, "stop")
    try:
        _until_stopped(first)
        say(
            "  worker 1 took the lock, was told that the lease is good, and was stopped (SIGSTOP) "
            "before its UPDATE was sent"
        )
        begun = time.monotonic()
        second = _start(order.pk, SECOND, alias, how, "go")
        next_told = _result(second)
        took = time.monotonic() - begun
        say(f"  worker 2 packed the order after {took:.1f} s (the ttl is {TTL_SECONDS:g} s)")
        order.refresh_from_db()
        if next_told["outcome"] != "written" or order.parcel != SECOND:
            raise DemoError(f"Worker 2 did not pack the order: {next_told}")
        first.send_signal(signal.SIGCONT)
        told = _result(first)
    finally:
        first.kill()
        first.communicate()
    order.refresh_from_db()
    outcome = Round(
        fenced=fenced,
        stale_token=told["token"],
        next_token=next_told["token"],
        outcome=told["outcome"],
        said=told.get("said", ""),
        parcel=order.parcel,
    )
    say(f"  worker 1 was continued (SIGCONT): its UPDATE was {outcome.outcome}")
    say(f"  the order says: {outcome.parcel}" + (", SPOILED" if outcome.spoiled else ""))
    return outcome


def _start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "testproject.shop.demo.packer", *map(str, words)],
        cwd=settings.BASE_DIR,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _until_stopped(process: subprocess.Popen[str]) -> None:
    """Wait until a process has been stopped by a signal; the system tells."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        with suppress(ChildProcessError):  # ended, and its end was taken note of
            if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None:
                return
        if process.poll() is not None:
            raise DemoError(f"Worker 1 ended before it was stopped.\n{process.communicate()[1]}")
        time.sleep(POLL_SECONDS)
    raise DemoError("Worker 1 was not stopped in time.")


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise DemoError("A worker did not end in time.") from error
    if process.returncode:
        raise DemoError(f"A worker ended with code {process.returncode}.\n{err.strip()[-4000:]}")
    told: dict[str, Any] = json.loads(out)
    return told
