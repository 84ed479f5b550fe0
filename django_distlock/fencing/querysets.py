"""Fenced writes: a queryset whose every write carries the token of a lease."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from asgiref.sync import sync_to_async
from django.db import models, transaction

from ..exceptions import InvalidLockError
from ..lease import Lease
from .fields import Columns, Fence, columns_of, pass_fence, refuse_rejected, writing

__all__ = ["Fenced", "FencedManager", "FencedQuerySet"]

M = TypeVar("M", bound=models.Model)


class Fenced(Generic[M]):
    """Rows that are written under a lease; made by `fenced`.

    Not a queryset: it has no write that would go past the fence. Every write raises LeaseLostError
    or LockNotHeldError when the lease is known to be gone, before the database is asked, and
    FenceRejectedError when the rows know better; then nothing was written at all.
    """

    __slots__ = ("_columns", "_lease", "_maker", "_one", "_rows")

    def __init__(
        self,
        rows: models.QuerySet[M],
        lease: Lease,
        columns: Columns,
        *,
        one: bool = False,
        maker: Any = None,
    ) -> None:
        self._rows = rows
        self._maker = maker  # the related manager that ties new rows to their owner
        self._lease = lease
        self._columns = columns
        self._one = one  # whether it is known that there is one row at most

    def filter(self, *conditions: Any, **lookups: Any) -> Fenced[M]:
        """Narrow the rows as `QuerySet.filter` does."""
        pk = lookups.get("pk")
        one = self._one or (pk is not None and not hasattr(pk, "resolve_expression"))
        rows = self._rows.filter(*conditions, **lookups)
        return Fenced(rows, self._lease, self._columns, one=one, maker=self._maker)

    def exclude(self, *conditions: Any, **lookups: Any) -> Fenced[M]:
        """Narrow the rows as `QuerySet.exclude` does."""
        rows = self._rows.exclude(*conditions, **lookups)
        return Fenced(rows, self._lease, self._columns, one=self._one, maker=self._maker)

    def update(self, **values: Any) -> int:
        """Update the rows, all or none, and return how many they are.

        0 says that there is no such row; rows that refuse raise FenceRejectedError. The condition
        is in the UPDATE itself, so that no moment lies between judging and writing.
        """
        fence = self._begin(values)
        rows, stamp = self._rows.order_by(), self._columns.stamp(fence)
        if not self._in_one_table():
            # Django would put all conditions into a subquery, which a database does not judge
            # again when the row has changed while it was waited for.
            with transaction.atomic(using=rows.db):
                self._pass(fence)
                return rows.filter(**stamp).update(**values)
        passing = rows.filter(self._columns.passes(fence))
        if self._one and (updated := passing.update(**values, **stamp)):
            return updated
        with transaction.atomic(using=rows.db):
            updated = 0 if self._one else passing.update(**values, **stamp)
            refuse_rejected(rows, self._columns, fence)
            return updated

    def create(self, **values: Any) -> M:
        """Insert a row that carries the token.

        No row is there yet that could refuse: let a unique constraint keep a second one out.
        """
        fence = self._begin(values)
        with writing(self._columns.stamp(fence)) as stamp:
            return cast("M", self._making().create(**values, **stamp))

    def get_or_create(
        self, defaults: Mapping[str, Any] | None = None, **lookups: Any
    ) -> tuple[M, bool]:
        """Return the row as it is, or insert one that carries the token; and whether it did."""
        fence = self._begin(defaults or {})
        with writing(self._columns.stamp(fence)) as stamp:
            made = {**(defaults or {}), **stamp}
            return cast("tuple[M, bool]", self._making().get_or_create(defaults=made, **lookups))

    def update_or_create(
        self,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Update the row or insert one; return it, and whether it was inserted.

        An update that is refused is undone; its signals have been sent by then.
        """
        given = create_defaults if create_defaults is not None else defaults
        fence = self._begin({**(defaults or {}), **(given or {})})
        made = {**(given or {}), **self._columns.stamp(fence)}
        stamping = writing(self._columns.stamp(fence))
        with transaction.atomic(using=self._rows.db), stamping:
            found, created = self._making().update_or_create(
                defaults=defaults or {}, create_defaults=made, **lookups
            )
            if not created:
                # After the update, which has the row locked: found first, it could change.
                owner = self._columns.model._meta.pk
                pass_fence(self._columns, fence, self._rows.db, [getattr(found, owner.attname)])
                for name, value in self._columns.stamp(fence).items():
                    setattr(found, name, value)
        return found, created

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the rows, all or none, and return what `QuerySet.delete` does."""
        fence = self._begin({})
        with transaction.atomic(using=self._rows.db):
            self._pass(fence)
            return self._rows.filter(**self._columns.stamp(fence)).delete()

    async def aupdate(self, **values: Any) -> int:
        """Update as `update`."""
        return await sync_to_async(self.update)(**values)

    async def acreate(self, **values: Any) -> M:
        """Create as `create`."""
        return await sync_to_async(self.create)(**values)

    async def aget_or_create(
        self, defaults: Mapping[str, Any] | None = None, **lookups: Any
    ) -> tuple[M, bool]:
        """Get or create as `get_or_create`."""
        return await sync_to_async(self.get_or_create)(defaults, **lookups)

    async def aupdate_or_create(
        self,
        defaults: Mapping[str, Any] | None = None,
        create_defaults: Mapping[str, Any] | None = None,
        **lookups: Any,
    ) -> tuple[M, bool]:
        """Update or create as `update_or_create`."""
        return await sync_to_async(self.update_or_create)(defaults, create_defaults, **lookups)

    async def adelete(self) -> tuple[int, dict[str, int]]:
        """Delete as `delete`."""
        return await sync_to_async(self.delete)()

    def _making(self) -> Any:
        """Return what inserts rows: the related manager, where the rows come from one."""
        if self._maker is not None:
            return self._maker.db_manager(self._rows.db)
        if self._rows._hints.get("instance") is not None or self._rows._known_related_objects:  # type: ignore[attr-defined]
            raise InvalidLockError(
                f"New rows of {self._rows.model.__name__} would not belong to the instance whose "
                "related manager this is: derive the model's manager from FencedManager, or write "
                "by the model's own manager and name the relation",
                name=self._lease.name,
                alias=self._lease.alias,
            )
        return self._rows

    def _begin(self, values: Mapping[str, Any]) -> Fence:
        """Return the fence of a lease that is not known to be gone."""
        if own := {self._columns.token, self._columns.mark} & set(values):
            raise InvalidLockError(
                f"{', '.join(sorted(own))} is written by the fence itself: leave it out",
                name=self._lease.name,
                alias=self._lease.alias,
            )
        return self._lease._fence()

    def _pass(self, fence: Fence) -> None:
        """Have all rows pass the fence, in whatever tables their conditions look."""
        owner = self._columns.model
        keys = self._rows.order_by("pk").values_list(owner._meta.pk.name, flat=True)
        pass_fence(self._columns, fence, self._rows.db, list(keys))

    def _in_one_table(self) -> bool:
        inherited = self._columns.model is not self._rows.model._meta.concrete_model
        return not inherited and len(self._rows.query.alias_map) <= 1


class FencedQuerySet(models.QuerySet[M]):
    """A queryset with `fenced`; also a mixin for querysets of your own."""

    def fenced(self, lease: Lease) -> Fenced[M]:
        """Return these rows for writing under ``lease``.

        Raises InvalidLockError for what is no lease (None, when the lock was not obtained),
        UnsupportedOperationError when its backend has no fencing tokens, and ImproperlyConfigured
        when the model has not the fields.
        """
        columns = columns_of(self.model)
        if not isinstance(lease, Lease):
            raise InvalidLockError(
                f"{self.model.__name__} rows are fenced by a Lease, not {lease!r}: was the lock "
                "obtained?"
            )
        _ = lease.fencing_token  # refuses backends that have none
        # That of writing, whatever a router says of reading.
        using = self.select_for_update().db
        return Fenced(self.using(using), lease, columns)

    @classmethod
    def as_manager(cls) -> Any:
        """Return a manager of this queryset, as Django's `as_manager` does."""
        base: Any = FencedManager
        manager = base.from_queryset(cls)()
        manager._built_with_asmanager = True
        return manager


_Manager = models.Manager.from_queryset(FencedQuerySet)


class FencedManager(_Manager[M]):
    """A manager whose querysets have `fenced`; a related one ties new rows to their owner."""

    def fenced(self, lease: Lease) -> Fenced[M]:
        """Return the rows for writing under ``lease``, as `FencedQuerySet.fenced`."""
        rows: Any = self.get_queryset()
        fenced: Fenced[M] = rows.fenced(lease)
        fenced._maker = self
        return fenced
