"""The one comparison that all conditional writes rest on, and the error when it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from django.db import DatabaseError, models
from django.db.models import Case, F, Lookup, Value, When

from ..core.text import shown
from ..exceptions import StaleVersionError
from .fields import VersionField

__all__ = [
    "Unchanged",
    "claim",
    "conflict",
    "has_key",
    "key_of",
    "known_version",
    "meta_of",
    "outdated",
    "refused",
]

if TYPE_CHECKING:
    from django.db.models.options import Options

    BooleanLookup = Lookup[bool]
else:  # the class takes no type parameter while the program runs
    BooleanLookup = Lookup

REMEDY = (
    "Nothing was written. Read it again (refresh_from_db()), apply the change to what it is now, "
    "and save; retry_on_conflict does so"
)


def meta_of(instance: models.Model) -> Options[Any]:
    """Return the options of the model itself, not of a proxy."""
    return cast("type[models.Model]", instance._meta.concrete_model)._meta


def has_key(instance: models.Model) -> bool:
    """Return whether the primary key is known, with all of its parts."""
    pk = instance.pk
    return None not in pk if isinstance(pk, tuple) else pk is not None


def key_of(instance: models.Model, field: VersionField) -> Any:
    """Return the key of the row that has the version: a parent's, where it has the column."""
    key = getattr(instance, field.model._meta.pk.attname)
    if key is None and (link := instance._meta.get_ancestor_link(field.model)):
        key = getattr(instance, link.attname)
    return key


def known_version(instance: models.Model, field: VersionField) -> int:
    """Return the version that an instance was read with; raise where it has none."""
    version = getattr(instance, field.attname)
    if isinstance(version, int):
        return version
    # None, or an expression, which would be compared with whatever is in the row.
    raise stale(
        instance._meta.model,
        "",
        {instance.pk: version},
        f"has no version: {shown(repr(version))} stands in its {field.name!r}",
    )


class Unchanged(BooleanLookup):
    """The condition that a row, by its key, still has its version.

    Said at once instead of by two arguments of ``filter()``, whose resolving takes as long as a
    third of a ``save()``.
    """

    lookup_name = "unchanged"
    contains_aggregate = False
    contains_over_clause = False
    output_field = models.BooleanField()

    def __init__(self, instance: models.Model, field: VersionField, version: int) -> None:
        # What these would be compared with is in the values.
        self.lhs = self.rhs = None
        self.values = [(f, getattr(instance, f.attname)) for f in meta_of(instance).pk_fields]
        self.values.append((field, version))

    def resolve_expression(self, *args: Any, **kwargs: Any) -> Self:
        """Return itself: the columns are those of the one table that is written."""
        return self

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        """Compare each column with its value."""
        quote = connection.ops.quote_name
        table = quote(self.values[-1][0].model._meta.db_table)
        return (
            " AND ".join([f"{table}.{quote(f.column)} = %s" for f, _ in self.values]),
            tuple([f.get_db_prep_value(value, connection) for f, value in self.values]),
        )


def claim(field: VersionField, using: str, versions: Mapping[Any, int]) -> int:
    """Raise the version of each row that still has the one given for its key; count them.

    In a transaction the rows are then ours until its end.
    """
    rows = field.model._base_manager.using(using)
    if len(versions) == 1:
        [(pk, version)] = versions.items()
        rows = rows.filter(pk=pk, **{field.name: version})
    else:
        big = models.BigIntegerField()  # Django takes a number for a small one, and cuts it off
        known = Case(
            *(When(pk=pk, then=Value(version, big)) for pk, version in versions.items()),
            output_field=big,
        )
        rows = rows.filter(pk__in=list(versions), **{field.name: known})
    try:
        return rows.update(**{field.name: F(field.name) + 1})
    except DatabaseError as error:
        if outdated(error):
            raise refused(field, using, versions, error) from error
        raise


def conflict(field: VersionField, using: str, versions: Mapping[Any, int]) -> StaleVersionError:
    """Look what became of rows that could not be claimed, and return the error that says so."""
    rows = field.model._base_manager.using(using).filter(pk__in=list(versions))
    now = dict(rows.values_list("pk", field.name))
    if not isinstance(field.model._meta.pk, models.CompositePrimaryKey):
        # "5" is what a program may hold for 5.
        versions = {field.model._meta.pk.to_python(pk): v for pk, v in versions.items()}
    changed = {pk: v for pk, v in versions.items() if now.get(pk) != v}
    if not changed:  # a snapshot that is older than the other's commit
        said = "was changed by another writer after this transaction had begun"
        return stale(field.model, using, versions, said)
    gone = [pk for pk in changed if pk not in now]
    if len(gone) == len(changed):
        return stale(field.model, using, changed, "was deleted by another writer since it was read")
    if all((now.get(pk) or v) < v for pk, v in changed.items()):
        said = "was saved in a transaction that was rolled back, and has not that version any more"
        return stale(field.model, using, changed, said)
    there = ", ".join(str(now.get(pk, "deleted")) for pk in list(changed)[:10])
    said = f"was changed by another writer since it was read: the version is now {there}"
    return stale(field.model, using, changed, said)


def stale(
    model: type[models.Model], using: str, versions: Mapping[Any, Any], said: str
) -> StaleVersionError:
    """Return the error for rows, with the versions that were known of them."""
    keys = ", ".join(repr(pk) for pk in list(versions)[:10])
    known = ", ".join(repr(version) for version in list(versions.values())[:10])
    more = f" and {len(versions) - 10} more" if len(versions) > 10 else ""
    return StaleVersionError(
        f"{model._meta.label} pk={shown(keys)}{more} (version {shown(known)}) {said}. {REMEDY}",
        model=model._meta.label,
        pks=tuple(versions),
        using=using,
    )


def outdated(error: DatabaseError) -> bool:
    """Return whether a database says that a row has changed since the transaction's snapshot.

    PostgreSQL from REPEATABLE READ on (40001) and MariaDB with snapshot isolation (1020) do not
    answer that no row was found.
    """
    driver: Any = error.__cause__ or error
    state = getattr(driver, "sqlstate", None) or getattr(driver, "pgcode", None)
    return state == "40001" or bool(driver.args and driver.args[0] == 1020)


def refused(
    field: VersionField, using: str, versions: Mapping[Any, int], error: DatabaseError
) -> StaleVersionError:
    """Return our error for what `outdated` has found."""
    said = f"was changed by another writer, said the database ({shown(str(error))})"
    return stale(field.model, using, versions, said)
