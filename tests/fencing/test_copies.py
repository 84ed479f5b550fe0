"""New rows of related managers, and copies of rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models

from django_distlock import FencedQuerySet, InvalidLockError
from tests.fencing.models import Account, Entry
from tests.fencing.tools import TOKEN, made_up


def account(store: str) -> Account:
    return Account.objects.using(store).create(owner="ada")


def test_new_rows_of_a_related_manager_belong_to_their_owner(store: str) -> None:
    owner = account(store)
    entries: Any = owner.entries  # type: ignore[attr-defined]
    lease = made_up("a")
    first = entries.fenced(lease).create(amount=1)
    second, made = entries.fenced(lease).get_or_create(amount=2)
    third, made_too = (
        entries.fenced(lease).filter(amount=3).update_or_create(defaults={"amount": 3}, amount=3)
    )
    assert made
    assert made_too
    for entry in (first, second, third):
        entry.refresh_from_db()
        assert entry.account_id == owner.pk
        assert entry.fence == TOKEN


def test_a_queryset_that_knows_no_manager_refuses_new_rows(store: str) -> None:
    """Rather than to make rows that belong to nobody."""
    entries: Any = account(store).entries  # type: ignore[attr-defined]
    rows = FencedQuerySet.fenced(entries.all(), made_up("a"))
    for insert in (rows.create, rows.get_or_create, rows.update_or_create):
        with pytest.raises(InvalidLockError, match="FencedManager"):
            insert(amount=1)
    assert entries.count() == 0
    assert rows.update(amount=2) == 0


def test_managers_of_a_queryset_insert_as_well(store: str) -> None:
    manager: models.Manager[Entry] = FencedQuerySet.as_manager()
    manager.model = Entry
    owner = account(store)
    fenced: Any = manager
    made = fenced.db_manager(store).fenced(made_up("a")).create(amount=1, account=owner)
    assert made.fence == TOKEN


def test_a_copy_was_not_written_under_the_lock_of_the_original(store: str) -> None:
    row = Account.objects.using(store).fenced(made_up("a")).create(owner="ada")
    assert row.fence == TOKEN
    row.pk = None
    row._state.adding = True
    row.save(using=store)
    row.refresh_from_db()
    assert (row.fence, row.fence_mark) == (0, "")
    made_up("b").save(row)  # another lock's, for it is another row
    row.refresh_from_db()
    assert row.fence == TOKEN


def test_a_copy_that_is_saved_under_a_lease_has_its_token(store: str) -> None:
    row = Account.objects.using(store).fenced(made_up("a")).create(owner="ada")
    row.pk = None
    row._state.adding = True
    made_up("b", TOKEN + 5).save(row, using=store)
    row.refresh_from_db()
    assert row.fence == TOKEN + 5
