"""Workers in processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.celery.app import app

LIMIT = 30
ROOT = "ignore:You're running the worker with superuser"  # where the tests do
OLD = "ignore:Call to deprecated setex"  # by Celery's result backend, in redis-py 8
PYTHON = [sys.executable, "-W", "error", "-W", ROOT, "-W", OLD]
COMMAND = [*PYTHON, "-m", "celery", "-A", "tests.celery.app", "worker"]
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat"]


class Worker:
    """One worker of a queue; it is ready when it has been entered."""

    def __init__(
        self, queue: str, log: Path, *, pool: str = "prefork", concurrency: int = 2, **more: Any
    ) -> None:
        self.queue = queue
        words = [
            "--pool",
            pool,
            "--concurrency",
            str(concurrency),
            "-Q",
            queue,
            "-n",
            f"{queue}@%h",
            *QUIET,
        ]
        env = {f"DISTLOCK_TEST_{key.upper()}": str(value) for key, value in more.items()}
        self.log = log / f"{queue}-{time.monotonic_ns()}.log"
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [*COMMAND, *words],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=os.environ | env,
                start_new_session=True,
            )

    def ready(self) -> Worker:
        """Wait until it takes tasks."""
        end = time.monotonic() + LIMIT
        name = f"{self.queue}@{os.uname().nodename}"
        while not app.control.ping([name], timeout=0.2):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
        return self

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the worker with all its processes, as the kernel does when memory is short."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT)

    def stop(self) -> None:
        """End the worker as an operator does, or by force when that takes too long."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LIMIT)
        self.kill()

    def ended(self) -> int:
        """Wait for its end."""
        return self.process.wait(LIMIT)
