"""Renewing many leases at once: how many statements it takes, and what it says of a lost one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from django_distlock.backends.table import BATCH, TableBackend
from django_distlock.core.values import Claim
from tests.backends.tools import database_alias, lock_alias, table
from tests.claims import claim, granted


@pytest.fixture
def backend(quiet: dict[str, Any]) -> Iterator[TableBackend]:
    """A lock table of each database, emptied at the end."""
    with database_alias("own", quiet), lock_alias("own", LOCATION="own") as alias:
        yield table(alias)
        with connections["own"].cursor() as cursor:
            cursor.execute("DELETE FROM distlock_lock")


def held(backend: TableBackend, name: str, *ttls: float) -> list[Claim]:
    """Take a lock for each ttl."""
    claims = [claim(backend, f"{name}:{number}", ttl) for number, ttl in enumerate(ttls)]
    for each in claims:
        granted(backend, each, limit=5.0)
    return claims


def renewed(backend: TableBackend, claims: Sequence[Claim]) -> tuple[list[bool], int]:
    """Renew them; return the answers and the number of statements."""
    with CaptureQueriesContext(connections[backend.database]) as queries:
        answers = backend.renew_many(claims)
    return answers, len(queries)


def pass_on(backend: TableBackend, lost: Claim) -> Claim:
    """Have another hold the lock instead."""
    assert backend.release(lost)
    theirs = claim(backend, lost.name)
    granted(backend, theirs, limit=5.0)
    return theirs


def test_one_more_than_a_batch_takes_two_statements(backend: TableBackend, name: str) -> None:
    """And a third one, which asks whose the locks of a batch are, when one of them is lost."""
    claims = held(backend, name, *[600.0] * (BATCH + 1))
    assert renewed(backend, claims) == ([True] * len(claims), 2)
    claims_left = claims[:7] + claims[8:]
    theirs = pass_on(backend, claims[7])
    assert renewed(backend, claims) == ([each in claims_left for each in claims], 3)
    assert renewed(backend, claims_left) == ([True] * BATCH, 1)
    assert backend.release(theirs)


def test_each_ttl_takes_a_statement(backend: TableBackend, name: str) -> None:
    """And each lease lasts for its own."""
    claims = held(backend, name, 60.0, 600.0, 60.0)
    before = [lasting(backend, each) for each in claims]
    assert renewed(backend, claims) == ([True] * 3, 2)
    after = [lasting(backend, each) for each in claims]
    assert all(new > old for old, new in zip(before, after, strict=True))
    assert abs(after[2] - after[0]) < 10
    assert abs(after[1] - after[0] - 540) < 10


def lasting(backend: TableBackend, claim: Claim) -> float:
    """Return when a lease ends."""
    info = backend.inspect(claim.name)
    assert info is not None
    assert info.owner == claim.owner
    assert info.expires_at is not None
    return info.expires_at.timestamp()
