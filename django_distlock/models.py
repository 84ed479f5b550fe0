"""The tables of the backends in SQL, and the base of models whose rows are fenced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar, Self

from django.db import models

from .fence import FenceMarkField, FencingTokenField
from .fenced import FencedManager
from .names import unreadable

__all__ = ["FencedModel", "LockRow", "RowLock", "RowSession", "RowToken"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LockRow(models.Model):
    """One name's row: held while ``expires`` is ahead of the database's clock, else free.

    The row stays after a release, so that its token is kept, until `manage.py cleanlocks` finds it
    idle; ``expires`` is then the time of the release, made negative.

    Times are microseconds since 1970 in UTC by the database's clock: integers, because time zones,
    daylight saving and the precision of date columns differ between databases. There is no index
    but the primary key: one on ``expires`` would end PostgreSQL's cheap in-place (HOT) updates.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    name = models.TextField()
    owner = models.CharField(max_length=64, default="")
    token = models.BigIntegerField(default=0)
    acquired = models.BigIntegerField(default=0)
    expires = models.BigIntegerField(default=0)
    note = models.TextField(default="")

    class Meta:
        db_table = "distlock_lock"
        verbose_name = "lock row"

    def __str__(self) -> str:
        return self.name

    @property
    def lock_name(self) -> str:
        """The lock's name as the program wrote it."""
        return unreadable(self.name)

    @property
    def expires_at(self) -> datetime:
        """When the lease ends, by the database's clock; 1970 when free."""
        return _EPOCH + timedelta(microseconds=max(0, self.expires))


class RowLock(models.Model):
    """One name's row of the row backend: held while a session of the database has it locked.

    What a session writes into its locked row (on MariaDB also ``session``, ``owner`` and ``note``)
    is committed by its release, and gone when the session ends otherwise.
    """

    digest = models.CharField(max_length=64, primary_key=True)
    name = models.TextField()
    token = models.BigIntegerField(default=0)
    session = models.BigIntegerField(default=0)
    owner = models.CharField(max_length=64, default="")
    note = models.TextField(default="")

    class Meta:
        db_table = "distlock_row"
        verbose_name = "row lock"

    def __str__(self) -> str:
        return self.name

    @property
    def lock_name(self) -> str:
        """The lock's name as the program wrote it."""
        return unreadable(self.name)


class RowToken(models.Model):
    """The last fencing token of a name, where it cannot stand in the row that is locked."""

    digest = models.CharField(max_length=64, primary_key=True)
    token = models.BigIntegerField()

    class Meta:
        db_table = "distlock_row_token"
        verbose_name = "row lock token"

    def __str__(self) -> str:
        return self.digest


class RowSession(models.Model):
    """What a session of PostgreSQL says it holds or waits for: for people, never for decisions.

    Written before the session asks for the row, since what it writes later is nobody's to see.
    """

    session = models.BigIntegerField(primary_key=True)
    digest = models.CharField(max_length=64)
    owner = models.CharField(max_length=64)
    note = models.TextField(default="")

    class Meta:
        db_table = "distlock_row_session"
        verbose_name = "row lock session"

    def __str__(self) -> str:
        return str(self.session)


class FencedModel(models.Model):
    """Gives a model's rows a fence, and its manager the method ``fenced(lease)``."""

    fence = FencingTokenField()
    fence_mark = FenceMarkField()

    objects: ClassVar[FencedManager[Self]] = FencedManager()

    class Meta:
        abstract = True
