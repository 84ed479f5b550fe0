"""The column that counts the writes of its row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from ..core import checking
from .forms import VersionFormField

__all__ = ["VersionField", "version_field"]


if TYPE_CHECKING:
    BigIntegerField = models.BigIntegerField[int, int]
else:  # the class takes no type parameter while the program runs
    BigIntegerField = models.BigIntegerField


class VersionAttribute(DeferredAttribute):
    """Refuses to load a version later than the row, which would claim what was not read."""

    def __get__(self, instance: models.Model | None, cls: Any = None) -> Any:
        # Asked only when the instance has no value of its own.
        if instance is None:
            return self
        raise FieldError(
            f"The version of {instance._meta.label} pk={instance.pk!r} was not loaded with it, so "
            f"no write can tell whether the row has changed since: name {self.field.name!r} in "
            "only(), leave it out of defer(), or call refresh_from_db()"
        )


class VersionField(BigIntegerField):
    """Counts the writes of a row; belongs to a `VersionedModel`, and there is one in each.

    A new row begins at the clock's microseconds, so that a row that is deleted and made again under
    the same key repeats no version. Rows that were there before the column begin at 0. Compare
    versions for being equal, and for nothing else.
    """

    descriptor_class = VersionAttribute

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", 0)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        """Leave the usual default out of migrations."""
        name, path, args, kwargs = super().deconstruct()
        if kwargs.get("default") == 0:
            del kwargs["default"]
        return name, path, args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the first version of a new row, or the one that `VersionedModel` has set."""
        if add:
            first = time.time_ns() // 1000
            setattr(model_instance, self.attname, first)
            return first
        if getattr(model_instance, "is_versioned", False):
            return getattr(model_instance, self.attname)
        # In a migration models have the fields of theirs, but not the base classes.
        if model_instance._meta.apps is not apps:
            return models.F(self.attname) + 1
        raise ImproperlyConfigured(_homeless(self))

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """Return the hidden input that carries the signed version, whatever else is asked for."""
        return VersionFormField()

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Refuse a model that would not compare the version, and options that break it."""
        found = super().check(**kwargs)
        if not getattr(self.model, "is_versioned", False):
            found.append(
                checking.error(
                    _homeless(self),
                    hint="Inherit from VersionedModel.",
                    obj=self,
                    id="distlock.E020",
                )
            )
        if self.null or self.primary_key or self.unique or not self.editable:
            found.append(
                checking.error(
                    "A VersionField is not null, unique, a primary key or not editable.",
                    hint="Leave these options out.",
                    obj=self,
                    id="distlock.E021",
                )
            )
        return found


def _homeless(field: VersionField) -> str:
    return (
        f"{field.model._meta.label} has the VersionField {field.name!r}, but is no VersionedModel: "
        "nothing would compare the version"
    )


def fields_of(model: type[models.Model]) -> Sequence[VersionField]:
    """Return the version fields of a model, inherited ones included."""
    return [f for f in model._meta.concrete_fields if isinstance(f, VersionField)]


@cache
def version_field(model: type[models.Model]) -> VersionField:
    """Return the one version field of a model, or raise ImproperlyConfigured."""
    found = fields_of(model)
    if len(found) != 1:
        raise ImproperlyConfigured(
            f"{model._meta.label} is a VersionedModel with {len(found)} VersionFields: declare "
            "one, such as version = VersionField()"
        )
    return found[0]
