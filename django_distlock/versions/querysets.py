"""Writing many rows: each write raises the version, and ``bulk_update`` compares it, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import F

from .fields import version_field
from .writing import claim, conflict, has_key, key_of, known_version

__all__ = ["VersionedManager", "VersionedQuerySet"]

M = TypeVar("M", bound=models.Model, covariant=True)

MOST = 100  # rows claimed by one statement; databases limit its length, SQLite to 999 parameters


class VersionedQuerySet(models.QuerySet[M]):
    """A queryset of a `VersionedModel` whose writes are seen by those who have read before."""

    def update(self, **kwargs: Any) -> int:
        """Write the rows as they are now, unconditionally, and raise their versions."""
        field = version_field(self.model)
        if kwargs and field.name not in kwargs:
            kwargs[field.name] = F(field.name) + 1
        return super().update(**kwargs)

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(
        self,
        objs: Iterable[Any],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[Any]:
        """Insert the rows; those that ``update_conflicts`` overwrites get another version."""
        field = version_field(self.model)
        if update_conflicts and update_fields and field.name not in update_fields:
            update_fields = [*update_fields, field.name]
        return super().bulk_create(
            objs, batch_size, ignore_conflicts, update_conflicts, update_fields, unique_fields
        )

    bulk_create.alters_data = True  # type: ignore[attr-defined]

    def bulk_update(
        self, objs: Iterable[Any], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """Write the objects' rows if no other has written any of them since; all or none.

        The StaleVersionError names the keys of the rows that have changed.
        """
        objs, fields = tuple(objs), list(fields)
        field = version_field(self.model)
        self._for_write = True
        using = self.db
        if self.query.has_filters() and all(map(has_key, objs)):
            # As Django: what the filter leaves out is not written, and so not claimed either.
            pks = set(self.filter(pk__in=[obj.pk for obj in objs]).values_list("pk", flat=True))
            objs = tuple(obj for obj in objs if obj.pk in pks)
        # One that does not raise the versions again.
        plain: models.QuerySet[Any] = models.QuerySet(self.model, self.query.chain(), using)
        if not all(map(has_key, objs)):
            return plain.bulk_update(objs, fields, batch_size)  # which says what is wrong
        if field.name in fields:
            raise ValueError(f"{field.name!r} is raised by bulk_update() itself: leave it out")
        versions = {key_of(obj, field): known_version(obj, field) for obj in objs}
        if len(versions) < len(objs):
            raise ValueError("bulk_update() of a VersionedModel writes each row once")
        stale, written = None, 0
        with transaction.atomic(using=using):
            for batch in _batches(versions):
                if claim(field, using, batch) != len(batch):
                    transaction.set_rollback(True, using=using)
                    stale = batch
                    break
            else:
                written = plain.bulk_update(objs, fields, batch_size)
        if stale is not None:
            raise conflict(field, using, stale)
        for obj in objs:
            setattr(obj, field.attname, getattr(obj, field.attname) + 1)
        return written

    bulk_update.alters_data = True  # type: ignore[attr-defined]


def _batches(versions: dict[Any, int]) -> Iterator[dict[Any, int]]:
    """Cut the rows into parts that one statement can name."""
    rows = iter(versions.items())
    while batch := dict(islice(rows, MOST)):
        yield batch


_Manager = models.Manager.from_queryset(VersionedQuerySet)


class VersionedManager(_Manager[M]):
    """The manager of a `VersionedModel`; derive yours from it, or from `VersionedQuerySet`."""
