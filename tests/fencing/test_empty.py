"""Rows whose fence is NULL: nobody has written them under a fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_distlock import FenceRejectedError, Lease
from tests.fencing.models import Loose
from tests.fencing.tools import TOKEN, made_up


def update(row: Loose, lease: Lease) -> None:
    rows = Loose.objects.using(row._state.db or "").fenced(lease)
    assert rows.filter(pk=row.pk).update(text="written") == 1


def save(row: Loose, lease: Lease) -> None:
    row.text = "written"
    lease.save(row)


def delete(row: Loose, lease: Lease) -> None:
    assert Loose.objects.using(row._state.db or "").fenced(lease).filter(pk=row.pk).delete()[0] == 1


WRITES = pytest.mark.parametrize("write", [update, save, delete])


@WRITES
@pytest.mark.parametrize("mark", ["", None])
def test_they_are_older_than_any_token(
    store: str, write: Callable[[Loose, Lease], None], mark: str | None
) -> None:
    row = Loose.objects.using(store).create(token=None, mark=mark)
    write(row, made_up("a", 0))
    if write is delete:
        assert not Loose.objects.using(store).filter(pk=row.pk).exists()
        return
    row.refresh_from_db()
    assert (row.text, row.token) == ("written", 0)
    write(row, made_up("a"))
    with pytest.raises(FenceRejectedError):
        write(row, made_up("a", TOKEN - 1))


@WRITES
def test_but_those_of_another_lock_refuse(store: str, write: Callable[[Loose, Lease], Any]) -> None:
    row = Loose.objects.using(store).create(token=None, mark="0" * 32)
    with pytest.raises(FenceRejectedError, match="under another lock"):
        write(row, made_up("a"))


def test_several(store: str, name: str) -> None:
    made = [Loose(text=name, token=token, mark=None) for token in (None, 1, TOKEN + 1)]
    Loose.objects.using(store).bulk_create(made)
    rows = Loose.objects.using(store).filter(text=name)
    with pytest.raises(FenceRejectedError) as caught:
        rows.fenced(made_up("a")).delete()
    assert len(caught.value.pks) == 1
    assert rows.fenced(made_up("a", TOKEN + 2)).delete()[0] == 3
