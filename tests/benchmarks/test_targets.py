"""What a database is judged by, on made-up figures: reached, missed by so much, or no verdict."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.targets import judge

OURS, OTHER, POLLING = "django-distlock", "django-db-mutex", "bare, polling"

Judged = dict[str, tuple[float | str, bool | None, str]]


def row(measure: str, adapter: str = OURS, store: str = "postgresql", **facts: Any) -> Any:
    """Return a line of a result."""
    return {"store": store, "measure": measure, "adapter": adapter, **facts}


def handoff(adapter: str = OURS, store: str = "postgresql", **facts: Any) -> Any:
    """Return a line of hand-offs among eight waiters."""
    figures = {"waiters": 8, "p50_us": 1000, "p99_us": 4000, "statements": 5.0}
    return row("handoff", adapter, store, **figures | facts)


def judged(*rows: Any) -> Judged:
    """Return what was got, whether that is enough, and how far it is from what was wanted."""
    return {each.what: (each.got, each.reached, each.off_by) for each in judge(list(rows))}


def test_hand_overs_that_are_as_wanted() -> None:
    """Let each figure be the worst that still will do."""
    rows = [handoff(), handoff(OTHER, p50_us=5000), handoff(POLLING, p99_us=4000)]
    assert judged(*rows) == {
        f"hand-off p50 / {OTHER}, 8 waiters": (0.2, True, "+0 %"),
        "hand-off p99 / polling, 8 waiters": (1.0, True, "+0 %"),
        "statements an acquisition, 8 waiters": (5.0, True, "+0 %"),
    }


def test_hand_overs_that_are_not() -> None:
    rows = [
        handoff(statements=6.0),
        handoff(OTHER, p50_us=4000),
        handoff(POLLING, p99_us=3200),
    ]
    assert judged(*rows) == {
        f"hand-off p50 / {OTHER}, 8 waiters": (0.25, False, "+25 %"),
        "hand-off p99 / polling, 8 waiters": (1.25, False, "+25 %"),
        "statements an acquisition, 8 waiters": (6.0, False, "+20 %"),
    }


@pytest.mark.parametrize(
    "absent",
    [
        [],
        # None of theirs was handed over, so that there are no times.
        [row("handoff", name, waiters=8, statements=0.0) for name in (OTHER, POLLING)],
        [handoff(name, waiters=2) for name in (OTHER, POLLING)],
        [handoff(name, store="mariadb") for name in (OTHER, POLLING)],
    ],
    ids=["not measured", "no samples", "other waiters", "another store"],
)
def test_hand_overs_without_anything_beside_them(absent: list[Any]) -> None:
    """Judge the statements alone."""
    assert set(judged(handoff(), *absent)) == {"statements an acquisition, 8 waiters"}


def test_hand_overs_of_others_alone_and_ours_without_samples() -> None:
    others = [handoff(OTHER), handoff(POLLING)]
    assert judged(*others) == {}
    assert judged(row("handoff", waiters=8, statements=0.0), *others) == {}


def test_few_waiters_are_not_judged_by_their_p99() -> None:
    rows = [handoff(waiters=2), handoff(OTHER, waiters=2), handoff(POLLING, waiters=2)]
    assert set(judged(*rows)) == {
        f"hand-off p50 / {OTHER}, 2 waiters",
        "statements an acquisition, 2 waiters",
    }


def test_statements_on_sqlite_are_shown_and_not_judged() -> None:
    rows = [handoff(store="sqlite", statements=90.0), handoff(OTHER, "sqlite", p50_us=10_000)]
    assert judged(*rows) == {f"hand-off p50 / {OTHER}, 8 waiters": (0.1, True, "-50 %")}


def failing(store: str, writes: dict[str, int], idle: dict[str, int]) -> Any:
    """Return a line of a thousand failing attempts."""
    return row("failing", store=store, attempts=1000, writes=writes, idle=idle)


def test_failing_attempts_that_wrote_nothing() -> None:
    """Take off what the server does by itself, also where that was more."""
    rows = [
        failing("postgresql", {"WAL syncs": 3, "WAL records": 70}, {"WAL syncs": 3}),
        failing("mariadb", {"syncs": 1, "log bytes": 900}, {"syncs": 4}),
        failing("sqlite", {"bytes written": 0}, {"bytes written": 0}),
    ]
    assert judged(*rows) == {
        "WAL syncs in 1000 failing attempts": (0.0, True, "+0"),
        "syncs in 1000 failing attempts": (0.0, True, "+0"),
        "bytes written in 1000 failing attempts": (0.0, True, "+0"),
    }


def test_failing_attempts_that_wrote() -> None:
    """Count all of it where nothing is known of an idle server."""
    rows = [
        failing("postgresql", {"WAL syncs": 5}, {"WAL syncs": 3}),
        failing("mariadb", {"syncs": 4}, {}),
        failing("sqlite", {"bytes written": 4096}, {"bytes written": 0}),
    ]
    assert judged(*rows) == {
        "WAL syncs in 1000 failing attempts": (2.0, False, "+2"),
        "syncs in 1000 failing attempts": (4.0, False, "+4"),
        "bytes written in 1000 failing attempts": (4096.0, False, "+4096"),
    }


def test_failing_attempts_of_others_are_not_judged() -> None:
    facts: dict[str, Any] = {"attempts": 1000, "writes": {"WAL syncs": 9}, "idle": {"WAL syncs": 0}}
    assert judged(row("failing", OTHER, **facts)) == {}


def renewals(**facts: Any) -> Any:
    """Return a line of renewed leases."""
    well = {"lost": 0, "least_remaining": 0.001, "missing_in_store": 0, "cpu_percent": 25.0}
    return row("renewals", leases=50_000, **well | facts)


def test_renewals_that_came_on_time() -> None:
    assert judged(renewals()) == {
        "lost of 50000 renewed leases": (0, True, "+0"),
        "renewed on time: least s left of 50000 renewed leases": (0.001, True, "+0.001"),
        "missing in the store of 50000 renewed leases": (0, True, "+0"),
        "% of a core for 50000 renewed leases": (25.0, True, "+0 %"),
    }


def test_renewals_that_did_not() -> None:
    """Miss "above 0" by nothing at all: a lost lease has 0 left, never less."""
    late = renewals(lost=2, least_remaining=0.0, missing_in_store=3, cpu_percent=30.0)
    assert judged(late) == {
        "lost of 50000 renewed leases": (2, False, "+2"),
        "renewed on time: least s left of 50000 renewed leases": (0.0, False, "+0"),
        "missing in the store of 50000 renewed leases": (3, False, "+3"),
        "% of a core for 50000 renewed leases": (30.0, False, "+20 %"),
    }


def test_renewals_that_were_not_measured() -> None:
    """Others renew nothing, and the row backend has no verdict on it."""
    assert judged(row("renewals", "django-distlock row", leases=5)) == {}
