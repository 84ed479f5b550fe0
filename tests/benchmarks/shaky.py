"""A contest for a lock that fails each waiter once; run as a program, for it forks."""

from __future__ import annotations

import json
import multiprocessing
import threading
from typing import Any

from benchmarks.adapter import Adapter
from benchmarks.bench import Bench
from benchmarks.measures.waiting import Rules, contest
from benchmarks.stores import STORES


class Shaky(Adapter):
    """A lock of the operating system, whose first attempt in each thread ends in an error."""

    name = "shaky"
    kind = "ours"

    def __init__(self, store: str) -> None:
        super().__init__(store)
        self.lock = multiprocessing.get_context("fork").Lock()
        self.known = threading.local()

    def open(self) -> None:
        """Connect nothing."""

    def close(self) -> None:
        """Close nothing."""

    def warm_up(self) -> None:
        """Leave the first attempt to the contest."""

    def acquire(self, key: str) -> Any:
        """Fail once, then wait."""
        if not getattr(self.known, "failed", False):
            self.known.failed = True
            raise KeyError(self.name)
        self.lock.acquire()

    def release(self, handle: Any) -> None:
        """Let the next one in."""
        self.lock.release()


def main() -> None:
    """Print what a contest comes to that forgives the errors, and one that does not."""
    store = STORES["sqlite"]()
    bench, fight = Bench(store=store, adapters=[]), {"waiters": 6, "processes": 2}
    done = contest(bench, Shaky("sqlite"), Rules(0.001, True, (KeyError,)), seconds=2.0, **fight)
    unforgiven = ""
    try:
        contest(bench, Shaky("sqlite"), Rules(0.001, True), seconds=0.5, **fight)
    except RuntimeError as error:
        unforgiven = str(error)
    left_over = len(multiprocessing.active_children())
    seen = {"failures": done.failures, "grants": done.grants}
    print(json.dumps({**seen, "unforgiven": unforgiven, "left_over": left_over}))


if __name__ == "__main__":
    main()
