# ruff: noqa: DJ008 - models of a moment
"""`lock_rows`: which rows, how firmly, and on which database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from django.db import connections, models, transaction
from django.test import override_settings

from django_distlock import UnsupportedOperationError
from django_distlock.models import LockRow
from django_distlock.rows import lock_rows
from tests.backends.tools import SERVERS, database_alias, elsewhere

on_servers = pytest.mark.parametrize("store", SERVERS)
on_postgresql = pytest.mark.parametrize("store", [s for s in SERVERS if s == "postgresql"])


class Parent(models.Model):
    """What others refer to."""

    objects: ClassVar[models.Manager[Parent]]

    class Meta:
        app_label = "lock_rows_tests"


class Child(models.Model):
    """Refers to one."""

    parent = models.ForeignKey(Parent, models.CASCADE)

    objects: ClassVar[models.Manager[Child]]

    class Meta:
        app_label = "lock_rows_tests"


@pytest.fixture
def child(store: str) -> Iterator[Child]:
    """A row that refers to another, in tables of the test's own."""
    with connections[store].schema_editor() as editor:
        editor.create_model(Parent)
        editor.create_model(Child)
    parent = Parent.objects.using(store).create()
    yield Child.objects.using(store).create(parent=parent)
    with connections[store].schema_editor() as editor:
        editor.delete_model(Child)
        editor.delete_model(Parent)


def free(rows: Any, **options: Any) -> bool:
    """Tell whether another transaction may lock rows."""

    def ask() -> bool:
        with transaction.atomic(using=rows.db):
            return bool(lock_rows(rows, skip_locked=True, **options))

    return elsewhere(ask)


@on_postgresql
def test_of_some_of_the_joined_tables(store: str, child: Child) -> None:
    children, parents = Child.objects.using(store), Parent.objects.using(store).all()
    joined = children.select_related("parent")
    with transaction.atomic(using=store):
        assert lock_rows(joined, of=["self"]) == [child]
        assert free(parents)
        assert not free(children.all())
        assert lock_rows(joined) == [child]
        assert not free(parents)


@on_postgresql
def test_without_the_key_others_may_refer_to_the_row(store: str, child: Child) -> None:
    parents = Parent.objects.using(store).all()

    def refer() -> None:
        with transaction.atomic(using=store), connections[store].cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '10s'")
            Child.objects.using(store).create(parent=child.parent)

    with transaction.atomic(using=store):
        assert len(lock_rows(parents, no_key=True)) == 1
        assert not free(parents)
        elsewhere(refer)


@pytest.mark.parametrize("store", [store for store in SERVERS if store == "mariadb"])
@pytest.mark.parametrize("options", [{"of": ["self"]}, {"no_key": True}])
def test_what_a_database_lacks_is_refused(store: str, options: dict[str, Any]) -> None:
    """Before anything is sent, so that the transaction goes on."""
    with transaction.atomic(using=store):
        with pytest.raises(UnsupportedOperationError, match="leave it out") as caught:
            lock_rows(LockRow.objects.using(store), **options)
        assert caught.value.alias == store
        assert next(iter(options)) in str(caught.value)
        lock_rows(LockRow.objects.using(store).filter(pk="none"))


class Router:
    """Reads from a replica, and writes to one database."""

    def __init__(self, store: str) -> None:
        self.store = store

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str:
        return self.store


@on_servers
def test_the_database_is_that_of_writing(store: str, name: str) -> None:
    key = f"{abs(hash(name)):x}"
    LockRow.objects.using(store).create(digest=key, name=name)
    rows = LockRow.objects.filter(pk=key)
    with (
        database_alias("replica", dict(connections.settings[store])),
        override_settings(DATABASE_ROUTERS=[Router(store)]),
    ):
        with transaction.atomic(using=store):
            (row,) = lock_rows(rows)
            assert row._state.db == store
            assert not free(LockRow.objects.using(store).filter(pk=key))
        # Named by hand it is that one.
        with transaction.atomic(using="replica"):
            assert lock_rows(rows.using("replica"))[0]._state.db == "replica"
