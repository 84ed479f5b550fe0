"""The worker processes: starting, telling, killing and ending them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from django.conf import settings

from .jobs import GO, Job
from .journal import READY, Reader, Turn, now

POLL_SECONDS = 0.02
START_SECONDS = 60
END_SECONDS = 5


class DemoError(Exception):
    """The demo cannot go on."""


@dataclass(slots=True)
class Worker:
    """One process, and what it has written down for its current job."""

    number: int
    process: subprocess.Popen[str]
    errors: Path
    journal: Reader = field(default_factory=lambda: Reader(Path(os.devnull)))

    def tell(self, line: str) -> None:
        """Send a line; a worker that has ended is noticed by the next look at it."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()

    def look(self) -> None:
        """Read its journal, and raise DemoError when it has ended."""
        code = self.process.poll()
        self.journal.refresh()
        if code is not None:
            said = self.errors.read_text(encoding="utf-8", errors="replace").strip()
            raise DemoError(f"Worker {self.number} ended with code {code}.\n{said[-4000:]}".strip())


class Crew:
    """A number of worker processes, all of which are gone when the block is left."""

    def __init__(self, size: int, folder: Path) -> None:
        self._size = size
        self._folder = folder
        self._jobs = 0
        self.workers: list[Worker] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all workers: politely, and after a while by force."""
        for worker in self.workers:
            assert worker.process.stdin is not None
            with suppress(OSError):
                worker.process.stdin.close()
            worker.process.terminate()
        deadline = time.monotonic() + END_SECONDS
        for worker in self.workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self.workers.clear()

    def fill(self) -> None:
        """Start workers until there are as many as there should be."""
        present = {worker.number for worker in self.workers}
        for number in range(1, self._size + 1):
            if number not in present:
                self.workers.append(self._start(number))
        self.workers.sort(key=lambda worker: worker.number)

    def _start(self, number: int) -> Worker:
        errors = self._folder / f"worker-{number}-{self._jobs}.err"
        with errors.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "testproject.shop.demo.worker", str(number)],
                cwd=settings.BASE_DIR,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the demo only, which ends them in order
            )
        return Worker(number, process, errors)

    def prepare(self, workers: list[Worker], job: Callable[[str], Job]) -> None:
        """Give a job, made from the path of a journal, to workers; return when all are ready."""
        self._jobs += 1
        for worker in workers:
            path = self._folder / f"job-{self._jobs}-worker-{worker.number}.jsonl"
            worker.journal = Reader(path)
            worker.tell(job(str(path)).dumps())
        self.until(workers, READY, START_SECONDS, "the workers are ready")

    def go(self, workers: list[Worker]) -> None:
        """Let workers begin the job they are ready for."""
        for worker in workers:
            worker.tell(GO)

    def kill(self, worker: Worker) -> int:
        """Kill a worker as `kill -9` does, and return when."""
        at = now()
        worker.process.kill()
        worker.process.wait()
        assert worker.process.stdin is not None
        with suppress(OSError):
            worker.process.stdin.close()
        self.workers.remove(worker)
        return at

    def until(
        self,
        workers: list[Worker],
        event: str,
        seconds: float,
        what: str,
        each: Callable[[list[Turn]], None] | None = None,
    ) -> None:
        """Wait until the workers have written that event down; call `each` with all turns so far.

        Raise DemoError when a worker ends, or when it takes too long.
        """
        deadline = time.monotonic() + seconds
        while True:
            for worker in workers:
                worker.look()
            if each is not None:
                each(turns_of(workers))
            if all(event in worker.journal.events for worker in workers):
                return
            if time.monotonic() > deadline:
                raise DemoError(f"Gave up after {seconds:.0f} s of waiting until {what}.")
            time.sleep(POLL_SECONDS)


def turns_of(workers: list[Worker]) -> list[Turn]:
    """Return what the workers have done in their current job."""
    return [turn for worker in workers for turn in worker.journal.turns]
