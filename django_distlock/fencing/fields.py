"""The fence in a row: the columns that hold it, and the condition under which a write passes.

A row remembers the highest token that has written it and, in a *mark* beside it, by which lock and
by which acquisition of it. A write passes when the row

- was written by the same lock, or under no fence yet, and its token is lower; or
- was written by this very acquisition, which may write as often as it likes.

So a lower token is refused, an equal one of another owner (a store that lost its newest data can
give one twice), and every token of another lock, for the numbers of two locks have no order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Q

from ..core import checking
from ..core.text import shown
from ..core.values import Claim
from ..exceptions import FenceRejectedError, InvalidLockError

if TYPE_CHECKING:
    _Number = models.BigIntegerField[int, int]
    _Text = models.CharField[str, str]
else:  # generic in the stubs only
    _Number, _Text = models.BigIntegerField, models.CharField

__all__ = [
    "Columns",
    "Fence",
    "FenceMarkField",
    "FencingTokenField",
    "columns_of",
    "pass_fence",
    "problem_with",
    "refuse_rejected",
    "save",
    "writing",
]

M = TypeVar("M", bound=models.Model)

HALF = 16  # characters of the mark that name the lock; as many name the acquisition
MOST = 100  # refusing rows that an error carries
SHOWN = 5  # ... and that its message names
BATCH = 500  # rows of one statement; SQLite takes 999 parameters where it is old


class _Kept(models.Field[Any, Any] if TYPE_CHECKING else object):  # type: ignore[misc]
    """Makes a field keep what the database has, whatever an instance says that was read before.

    Without it a plain `save()` of an instance read earlier would put an old token back, and let a
    stale holder through again. A copy of a row has what a fenced write gives it, else nothing: it
    was not written under the lock of the original.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        if not add:
            return F(self.attname)
        value = getattr(model_instance, self.attname)
        if model_instance._state.db is not None:  # it was read or saved before: a copy
            value = _writing.get().get(self.name, self.get_default())
            setattr(model_instance, self.attname, value)
        return value

    def deconstruct(self) -> Any:
        # Migrations name the public place, so that this module may be moved.
        name, path, args, kwargs = super().deconstruct()
        path = path.replace("django_distlock.fencing.fields.", "django_distlock.")
        return name, path, args, kwargs

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Refuse a column that may be empty: no condition compares what is not there."""
        found: list[CheckMessage] = super().check(**kwargs)
        if self.null:
            found.append(
                checking.error(
                    f"A {type(self).__name__} is not null.",
                    hint="Leave null out, and run makemigrations.",
                    obj=self,
                    id="distlock.E026",
                )
            )
        return found


# What the fenced write that is under way gives to new rows.
_writing: ContextVar[Mapping[str, Any]] = ContextVar("django_distlock_writing", default={})  # noqa: B039 - never changed


@contextmanager
def writing(stamp: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Have new rows carry ``stamp`` that are saved in the block."""
    mark = _writing.set(stamp)
    try:
        yield stamp
    finally:
        _writing.reset(mark)


class FencingTokenField(_Kept, _Number):
    """The highest fencing token that has written the row; 0 when none has.

    Only fenced writes change it: a plain `save()` of a saved instance leaves it as it is. It needs
    a `FenceMarkField` beside it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"default": 0, "editable": False} | kwargs)


class FenceMarkField(_Kept, _Text):
    """Tells under which lock, and by which acquisition, the token beside it was written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given: dict[str, Any] = {
            "max_length": 2 * HALF,
            "default": "",
            "editable": False,
            "blank": True,
        }
        super().__init__(*args, **given | kwargs)


@dataclass(frozen=True, slots=True)
class Fence:
    """What the writes of one acquisition carry."""

    token: int
    mark: str
    name: str
    alias: str

    @classmethod
    def of(cls, token: int, claim: Claim, alias: str) -> Fence:
        """Return the fence of a claim that was granted ``token``.

        The mark has digests only: the owner itself is the right to release the lock. The lock is
        told by prefix and name, not by its store, so that a lock may move to another store.
        """
        halves = (sha256(part.encode()).hexdigest()[:HALF] for part in (claim.key, claim.owner))
        return cls(token, "".join(halves), claim.name, alias)


@dataclass(frozen=True, slots=True)
class Columns:
    """The two columns of a model's fence, and whose table has them: the model's or a parent's."""

    model: type[models.Model]
    token: str
    mark: str

    def passes(self, fence: Fence) -> Q:
        """Return the condition under which ``fence`` may write a row."""
        same_lock = Q(**{self.mark: ""}) | Q(**{f"{self.mark}__startswith": fence.mark[:HALF]})
        older = Q(**{f"{self.token}__lt": fence.token})
        # Refused by the check, but rows may have it: those not yet written under a fence.
        if self.model._meta.get_field(self.mark).null:
            same_lock |= Q(**{f"{self.mark}__isnull": True})
        if self.model._meta.get_field(self.token).null:
            older |= Q(**{f"{self.token}__isnull": True})
        return older & same_lock | Q(**self.stamp(fence))

    def stamp(self, fence: Fence) -> dict[str, Any]:
        """Return what a row holds that ``fence`` has written."""
        return {self.token: fence.token, self.mark: fence.mark}


def problem_with(model: type[models.Model]) -> str:
    """Return why rows of ``model`` cannot be fenced, with the remedy; empty when they can."""
    tokens, marks = _of_kind(model, FencingTokenField), _of_kind(model, FenceMarkField)
    if len(tokens) == len(marks) == 1:
        if tokens[0].model is marks[0].model:
            return ""
        has = "in the tables of two models"
    else:
        has = f"there are: {', '.join(field.name for field in (*tokens, *marks)) or 'none'}"
    return (
        f"{model._meta.label} has not the two fields of a fence ({has}): derive it from "
        "django_distlock.models.FencedModel, or give it one FencingTokenField and one "
        "FenceMarkField, and run makemigrations"
    )


def columns_of(model: type[models.Model]) -> Columns:
    """Return the columns of a model's fence; raises ImproperlyConfigured when it has none."""
    if problem := problem_with(model):
        raise ImproperlyConfigured(f"{problem}.")
    (token,), (mark,) = _of_kind(model, FencingTokenField), _of_kind(model, FenceMarkField)
    return Columns(token.model, token.name, mark.name)


def _of_kind(
    model: type[models.Model], kind: type[models.Field[Any, Any]]
) -> list[models.Field[Any, Any]]:
    return [field for field in model._meta.fields if isinstance(field, kind)]


def refuse_rejected(rows: models.QuerySet[M], columns: Columns, fence: Fence) -> None:
    """Raise FenceRejectedError when ``fence`` must not write some of ``rows``.

    To be called in a transaction, after the conditional write.
    """
    refused = rows.exclude(columns.passes(fence)).order_by()
    if _sees_old_data(connections[rows.db]):
        refused = refused.select_for_update()
    found = list(refused.values_list("pk", columns.token, columns.mark)[:MOST])
    if found:
        raise _rejected(columns, fence, found)


def _sees_old_data(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a SELECT may show a row as it was before what an UPDATE has just met.

    So on MySQL and MariaDB, where only the SELECTs keep to the snapshot of the transaction, but not
    at the level that Django asks for unless told otherwise.
    """
    level = getattr(connection, "isolation_level", None)
    return connection.vendor == "mysql" and level != "read committed"


def _rejected(
    columns: Columns, fence: Fence, found: list[tuple[object, int | None, str | None]]
) -> FenceRejectedError:
    token = max(token or 0 for _, token, _ in found)
    if any(mark and mark[:HALF] != fence.mark[:HALF] for _, _, mark in found):
        why = "written under another lock, with whose tokens ours cannot be compared"
        remedy = (
            "Use one lock for a row; when it was renamed and the old one is not held, empty the "
            f"fence by update({columns.token}=0, {columns.mark}='')"
        )
    else:
        who = "a newer holder" if token > fence.token else "another holder"
        why = f"written by {who} (token {token}, ours is {fence.token})"
        remedy = "Acquire the lock again, and start again from what the rows hold now"
    pks = tuple(pk for pk, _, _ in found)
    named = ", ".join(str(pk) for pk in pks[:SHOWN]) + (", …" if len(pks) > SHOWN else "")
    was = "was" if len(pks) == 1 else "were"
    return FenceRejectedError(
        f"Nothing was written: {columns.model._meta.label} {named} {was} {why}. {remedy}",
        name=fence.name,
        alias=fence.alias,
        pks=pks,
    )


def pass_fence(columns: Columns, fence: Fence, using: str, pks: Collection[object]) -> int:
    """Write the fence into rows that exist, or raise FenceRejectedError; return how many they are.

    To be called in a transaction, which keeps the rows from everybody else until its end: what it
    writes into them after this has passed the fence too.
    """
    # A plain queryset: a versioned one would raise the version, which a save() then compares.
    own = columns.model._base_manager.using(using)
    rows: models.QuerySet[Any] = models.QuerySet(columns.model, own.query.chain(), using)
    keys = list(dict.fromkeys(pks))
    passed = 0
    for begin in range(0, len(keys), BATCH):
        batch = rows.filter(pk__in=keys[begin : begin + BATCH])
        here = batch.filter(columns.passes(fence)).update(**columns.stamp(fence))
        if here < len(keys[begin : begin + BATCH]):
            refuse_rejected(batch, columns, fence)
        passed += here
    return passed


def save(
    fence: Fence,
    instance: models.Model,
    *,
    using: str | None = None,
    update_fields: Collection[str] | None = None,
) -> None:
    """Save ``instance`` by its own `save()`, in one transaction with the write of the fence."""
    if not isinstance(instance, models.Model):
        raise InvalidLockError(
            f"save() is given an instance of a model, not {shown(repr(instance))}: read it first, "
            "or write by fenced(lease).update()",
            name=fence.name,
            alias=fence.alias,
        )
    columns = columns_of(type(instance))
    using = using or router.db_for_write(type(instance), instance=instance)
    stamp = columns.stamp(fence)
    if instance._state.adding:
        before = {name: getattr(instance, name) for name in stamp}
        _set(instance, stamp)
        try:
            with writing(stamp):
                instance.save(using=using, force_insert=True, update_fields=update_fields)
        except BaseException:
            _set(instance, before)
            raise
        return
    with transaction.atomic(using=using):
        # Of the parent's table where the fence is inherited from a model with a table of its own.
        pk = getattr(instance, columns.model._meta.pk.attname)
        if not pass_fence(columns, fence, using, [pk]):
            raise cast("Any", type(instance)).DoesNotExist(
                f"{type(instance).__name__} {instance.pk} is not there any more: nothing was saved."
            )
        if update_fields is None:
            instance.save(using=using, force_update=True)
        else:
            instance.save(using=using, update_fields=update_fields)
    _set(instance, stamp)


def _set(instance: models.Model, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(instance, name, value)
