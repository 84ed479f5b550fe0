"""The row of the lock table, for people."""

from __future__ import annotations

from datetime import UTC, datetime

from django_distlock.core.names import readable
from django_distlock.models import LockRow


def test_a_row_shows_the_name_as_the_program_wrote_it() -> None:
    row = LockRow(name=readable("a\0\u00e9"))
    assert str(row) == r"a\x00\xe9"
    assert row.lock_name == "a\0\u00e9"


def test_a_row_shows_when_it_ends() -> None:
    assert LockRow(expires=1_500_000).expires_at == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert LockRow(expires=-1_500_000).expires_at == datetime(1970, 1, 1, tzinfo=UTC)  # freed
    assert LockRow().expires_at == datetime(1970, 1, 1, tzinfo=UTC)
