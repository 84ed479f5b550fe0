"""Workers in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from tests.celery.app import app

LIMIT = 60
ROOT = "ignore:You're running the worker with superuser"  # where the tests do
OLD = "ignore:Call to deprecated setex"  # by Celery's result backend, in redis-py 8
PYTHON = [sys.executable, "-W", "error", "-W", ROOT, "-W", OLD]
CELERY = [*PYTHON, "-m", "celery", "-A"]
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]


class Process:
    """A program of Celery's in a session of its own."""

    def __init__(self, log: Path, *words: str, **env: object) -> None:
        self.log = log
        given = {f"DISTLOCK_TEST_{key.upper()}": str(value) for key, value in env.items()}
        with log.open("w") as out:
            self.process = subprocess.Popen(
                [*CELERY, *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | given,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with all its processes, as the kernel does when memory is short."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)

    def stop(self) -> None:
        """End it as an operator does, or by force when that takes too long."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LIMIT)
        self.kill()

    def ended(self) -> int:
        """Wait for its end."""
        return self.process.wait(LIMIT)


class Beat(Process):
    """The beat of a host, which sends tasks of `beating` with a tag."""

    def __init__(self, log: Path, *, host: str, tag: str) -> None:
        words = ["tests.celery.beating", "beat", "--scheduler", "celery.beat:Scheduler"]
        # Without a pid file: they stand for two hosts, each of which would have one of its own.
        super().__init__(log / f"beat-{host}-{tag}.log", *words, "--pidfile=", host=host, tag=tag)


class Worker(Process):
    """One worker of a queue."""

    def __init__(
        self, queue: str, log: Path, *, pool: str = "prefork", concurrency: int = 2, **more: Any
    ) -> None:
        self.queue = queue
        self.concurrency = concurrency
        self.name = f"{queue}-{time.monotonic_ns()}"  # two of a queue do not answer for each other
        words = [
            "tests.celery.app",
            "worker",
            "--pool",
            pool,
            "--concurrency",
            str(concurrency),
            "-Q",
            queue,
            "-n",
            f"{self.name}@%h",
            *QUIET,
        ]
        super().__init__(log / f"{self.name}.log", *words, **more)

    @property
    def node(self) -> str:
        """By what Celery asks it."""
        return f"{self.name}@{os.uname().nodename}"

    def wait_until_replaced(self, process: int) -> None:
        """Wait until its pool has another in the place of a process that was killed.

        Until it has, Celery may send that process a task, which is late then, or lost.
        """
        end = time.monotonic() + LIMIT
        while True:
            stats: Any = app.control.inspect([self.node], timeout=1.0).stats() or {}
            found = stats.get(self.node, {}).get("pool", {}).get("processes", [])
            if len(found) == self.concurrency and process not in found:
                return
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def ready(self) -> Self:
        """Wait until it takes tasks."""
        end = time.monotonic() + LIMIT
        while not app.control.ping([self.node], timeout=0.2):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
        return self
