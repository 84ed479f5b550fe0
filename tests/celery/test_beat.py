"""Two beats, as on two hosts: what both of them send is run once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.celery.board import Board
    from tests.celery.workers import Beat


@pytest.fixture
def beats(workers: Any, logs: Path, tag: str) -> Iterator[list[Beat]]:
    """Start a beat on each of two hosts."""
    from tests.celery.workers import Beat

    started = [Beat(logs, host=host, tag=tag) for host in ("alpha", "beta")]
    yield started
    for beat in started:
        beat.stop()


def reached(count: int, said: list[str]) -> bool:
    """Tell whether there are so many words."""
    return len(said) >= count


def test_of_what_two_beats_send_one_is_run(beats: list[Beat], board: Board, tag: str) -> None:
    """Until `min_hold` is over nobody is granted the lock again, though its task has ended."""
    from tests.celery.tasks import ALIASES, MIN_HOLD

    for using in ALIASES:
        for tags, most in ((f"{tag}-{using}", 3), (f"{tag}-{using}-skipped", 2)):
            for count in range(1, most + 1):  # one after the other: each has its time limit
                board.wait_until(tags, partial(reached, count))
    for beat in beats:
        assert beat.process.poll() is None, beat.log.read_text()
    for using in ALIASES:
        runs = [word.split() for word in board.said(f"{tag}-{using}")]
        skipped = board.said(f"{tag}-{using}-skipped")
        assert {host for _, host in runs} | set(skipped) == {"alpha", "beta"}
        # A token is the time of its grant by the store's clock, in microseconds.
        granted = [int(token) / 1e6 for token, _ in runs]
        assert min(after - before for before, after in pairwise(granted)) >= MIN_HOLD
