"""The base class of models whose rows are written only by those who have read their last state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

from django.core.checks import CheckMessage
from django.db import DatabaseError, models, router, transaction
from django.db.models.signals import post_save, pre_save

from ..core import checking
from .fields import VersionField, fields_of, version_field
from .querysets import VersionedManager, VersionedQuerySet
from .writing import (
    Unchanged,
    claim,
    conflict,
    has_key,
    key_of,
    known_version,
    meta_of,
    outdated,
    refused,
)

__all__ = ["VersionedModel"]


class VersionedModel(models.Model):
    """A row that is saved or deleted only from an instance that has read what it is now.

    ``save()`` and ``delete()`` raise `StaleVersionError` when another has written or deleted
    the row since it was read, write nothing then, and leave the instance as it was. An instance
    that was not read is inserted, and never overwrites a row.

    To name the field otherwise: ``version = None`` and ``revision = VersionField()``.
    """

    is_versioned: ClassVar[bool] = True

    version = VersionField()

    objects: ClassVar[VersionedManager[Self]] = VersionedManager()
    # What Django itself writes through (relations, SET_NULL), whatever `objects` becomes.
    versioned: ClassVar[VersionedManager[Self]] = VersionedManager()

    class Meta:
        abstract = True
        base_manager_name = "versioned"

    def save_base(
        self,
        raw: bool = False,
        force_insert: Any = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Insert a new instance; write one that was read on condition that no other has.

        Fixtures do not come here: Django loads them as they are.
        """
        field = version_field(type(self))
        using = using or router.db_for_write(type(self), instance=self)
        forced = bool(force_update or update_fields)
        new = bool(force_insert) or not has_key(self) or (self._state.adding and not forced)
        inherits = field.model is not self._meta.concrete_model
        if raw:
            super().save_base(True, force_insert, force_update, using, update_fields)
        elif new and not (inherits and self._extends(field, force_insert)):
            # Where the key is known Django would look whether there is a row to overwrite.
            force_insert = force_insert or (not inherits and has_key(self) and not forced)
            before = _snapshot(self)
            try:
                super().save_base(False, force_insert, force_update, using, update_fields)
            except BaseException:
                before()
                raise
        elif inherits or meta_of(self).parents:
            self._save_parts(field, using, force_insert, force_update, update_fields)
        else:
            self._save_row(field, using, update_fields)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def delete(self, using: str | None = None, keep_parents: bool = False) -> Any:
        """Delete the row on condition that no other has written or deleted it."""
        if not has_key(self):
            return super().delete(using, keep_parents)  # which says what is wrong
        field = version_field(type(self))
        using = using or router.db_for_write(type(self), instance=self)
        pk, known = key_of(self, field), known_version(self, field)
        deleted = None
        with transaction.atomic(using=using):
            if claimed := claim(field, using, {pk: known}):
                deleted = super().delete(using, keep_parents)
        if not claimed:
            raise conflict(field, using, {pk: known})
        if keep_parents and field.model is not self._meta.concrete_model:
            setattr(self, field.attname, known + 1)
        return deleted

    delete.alters_data = True  # type: ignore[attr-defined]

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Refuse a model without its field, and warn of managers that do not raise the version."""
        found = super().check(**kwargs)
        if len(fields_of(cls)) != 1:
            found.append(
                checking.error(
                    f"A VersionedModel has one VersionField, not {len(fields_of(cls))}.",
                    hint="Declare one in the model or in one of its bases.",
                    obj=cls,
                    id="distlock.E022",
                )
            )
        for manager in (cls._default_manager, cls._base_manager):
            if not isinstance(manager.get_queryset(), VersionedQuerySet):
                found.append(
                    checking.warning(
                        f"The manager {manager.name!r} writes without raising the version, so the "
                        "change is not noticed.",
                        hint="Derive its queryset from VersionedQuerySet, and put VersionedModel "
                        "first among the bases.",
                        obj=cls,
                        id="distlock.W020",
                    )
                )
        return found

    def _extends(self, field: VersionField, force_insert: Any) -> bool:
        """Return whether a new child may belong to a parent's row that is there already."""
        told = isinstance(force_insert, tuple) and issubclass(field.model, force_insert)
        return not told and key_of(self, field) is not None

    def _save_row(
        self, field: VersionField, using: str, update_fields: Iterable[str] | None
    ) -> None:
        """Write the one row of a model without parents, as Django does but for the condition."""
        meta = meta_of(self)
        before = _snapshot(self)
        signalled: dict[str, Any] = {
            "sender": type(self),
            "instance": self,
            "raw": False,
            "using": using,
            "update_fields": update_fields,
        }
        try:
            if not meta.auto_created:
                pre_save.send(**signalled)
            known = known_version(self, field)
            values = {
                f.name: f.pre_save(self, False)
                for f in meta.local_concrete_fields
                if not (f.generated or f in meta.pk_fields)
                and (not update_fields or f.name in update_fields or f.attname in update_fields)
            }
            values[field.name] = known + 1
            rows = field.model._base_manager.using(using)
            try:
                written = rows.filter(Unchanged(self, field, known)).update(**values)
            except DatabaseError as error:
                if outdated(error):
                    raise refused(field, using, {self.pk: known}, error) from error
                raise
            if not written:
                raise conflict(field, using, {self.pk: known})
        except BaseException:
            before()
            raise
        setattr(self, field.attname, known + 1)
        for f in meta.local_concrete_fields:
            # The database knows what came out of these: they are read when they are asked for.
            if f.generated or hasattr(values.get(f.name), "resolve_expression"):
                self.__dict__.pop(f.attname, None)
        self._state.db = using
        self._state.adding = False
        if not meta.auto_created:
            post_save.send(**signalled, created=False)

    def _save_parts(
        self,
        field: VersionField,
        using: str,
        force_insert: Any,
        force_update: bool,
        update_fields: Iterable[str] | None,
    ) -> None:
        """Write the rows of a model with parents: claim the one that has the version, then all."""
        before = _snapshot(self)
        pk, known = key_of(self, field), known_version(self, field)
        new = bool(force_insert) or (self._state.adding and not (force_update or update_fields))
        with transaction.atomic(using=using, savepoint=False):
            claimed = claim(field, using, {pk: known})
            if claimed:
                setattr(self, field.attname, known + 1)
            elif new and not field.model._base_manager.using(using).filter(pk=pk).exists():
                # Insisted on, so that nobody's row is overwritten who is faster.
                force_insert = (field.model,)
            else:
                force_insert = None
            if force_insert is not None:
                try:
                    super().save_base(False, force_insert, force_update, using, update_fields)
                except BaseException:
                    before()
                    raise
        if force_insert is None:
            raise conflict(field, using, {pk: known})


def _snapshot(instance: models.Model) -> Callable[[], None]:
    """Return a function that gives the fields of an instance the values that they have now."""
    state = instance.__dict__
    before = state.copy()

    def restore() -> None:
        for field in instance._meta.concrete_fields:
            if field.attname in before:
                state[field.attname] = before[field.attname]
            else:
                state.pop(field.attname, None)

    return restore
