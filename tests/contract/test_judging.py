"""The contract suite's own tools fail when they have to: judging counts, talking to processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from django_distlock import InvalidLockError
from django_distlock.testing.counting import Round, Task, judge
from django_distlock.testing.processes import Process, ProcessEnded

RIGHT = [
    Round(who=0, token=1, asked=0.0, had=0.1, value=0),
    Round(who=1, token=2, asked=0.0, had=0.3, value=1),
    Round(who=0, token=3, asked=0.2, had=0.5, value=None),
    Round(who=1, token=4, asked=0.4, had=0.7, value=2),
]
"""Two who took turns; a lease of one was left to expire."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What the counters counted in."""
    path = tmp_path / "count"
    path.write_text("3")
    return path


def test_what_is_right_passes(file: Path) -> None:
    judge(RIGHT, str(file), fencing=True)


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (3, {"value": 1}, "updates were lost"),
        (3, {"token": 2}, "the token did not rise"),
        (2, {"token": 4}, "a token was given twice"),
        (2, {"token": 1}, "a token was given twice"),
        (2, {"token": 0}, "a lower token was given later"),
    ],
)
def test_what_is_wrong_is_found(file: Path, number: int, change: dict[str, int], said: str) -> None:
    rounds = list(RIGHT)
    rounds[number] = rounds[number]._replace(**change)
    with pytest.raises(AssertionError, match=said):
        judge(rounds, str(file), fencing=True)
    if "token" in change:
        judge(rounds, str(file), fencing=False)


def test_a_file_that_says_something_else_is_found(file: Path) -> None:
    file.write_text("2")
    with pytest.raises(AssertionError, match="does not say 3"):
        judge(RIGHT, str(file), fencing=True)


def test_a_lock_that_never_changed_hands_proves_nothing(file: Path) -> None:
    rounds = [each._replace(who=0) for each in RIGHT]
    with pytest.raises(AssertionError, match="nothing was tested"):
        judge(rounds, str(file), fencing=True)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_errors_of_a_process_are_raised_here(mode: str, name: str, file: Path) -> None:
    endless = Task("locmem", name, str(file), rounds=10**9, short=0.2)

    async def talk() -> None:
        async with Process(mode, "locmem") as process:
            with pytest.raises(InvalidLockError, match="ttl"):
                await process.acquire(name, ttl=-1)
            counting = asyncio.create_task(process.count(endless, 0))
            while file.read_text() in ("3", ""):  # it is being written
                await asyncio.sleep(0.01)
            await process.kill()
            with pytest.raises(ProcessEnded):
                await counting

    asyncio.run(talk())
