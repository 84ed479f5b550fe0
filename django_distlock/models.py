"""The tables of the backends in SQL, and the base of models whose rows are fenced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar, Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from .core.names import unreadable
from .core.text import shown
from .fencing.fields import FenceMarkField, FencingTokenField
from .fencing.querysets import FencedManager

__all__ = [
    "AdvisoryHolder",
    "AdvisoryRun",
    "FencedModel",
    "ForcedRelease",
    "HeldLock",
    "LockRow",
    "RowLock",
    "RowSession",
    "RowToken",
]

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
        default_permissions = ()
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
        default_permissions = ()
        verbose_name = "row lock"

    def __str__(self) -> str:
        return self.name

    @property
    def lock_name(self) -> str:
        """The lock's name as the program wrote it."""
        return unreadable(self.name)


class RowToken(models.Model):
    """The last fencing token of a name, where it cannot be in the row that is locked."""

    digest = models.CharField(max_length=64, primary_key=True)
    token = models.BigIntegerField()

    class Meta:
        db_table = "distlock_row_token"
        default_permissions = ()
        verbose_name = "row lock token"

    def __str__(self) -> str:
        return self.digest


class RowSession(models.Model):
    """What a session of PostgreSQL says it holds or waits for: for people, never for decisions.

    Written before the session asks for the row, since no other session sees what it writes later.
    """

    session = models.BigIntegerField(primary_key=True)
    digest = models.CharField(max_length=64)
    owner = models.CharField(max_length=64)
    note = models.TextField(default="")

    class Meta:
        db_table = "distlock_row_session"
        default_permissions = ()
        verbose_name = "row lock session"

    def __str__(self) -> str:
        return str(self.session)


class AdvisoryHolder(models.Model):
    """An advisory lock that a session holds: for people, never for decisions.

    A row counts while its session has the lock. On PostgreSQL tokens are drawn from the sequence of
    this table.
    """

    token = models.BigAutoField(primary_key=True)
    digest = models.CharField(max_length=64)
    name = models.TextField()
    owner = models.CharField(max_length=64)
    note = models.TextField(default="")
    lock_key = models.CharField(max_length=64)
    session = models.BigIntegerField()
    acquired = models.BigIntegerField()
    forced = models.SmallIntegerField(default=0)

    class Meta:
        db_table = "distlock_advisory"
        default_permissions = ()
        indexes = (
            models.Index(fields=("digest",), name="distlock_advisory_digest"),
            models.Index(fields=("session",), name="distlock_advisory_session"),
        )
        verbose_name = "advisory lock"

    def __str__(self) -> str:
        return self.name


class AdvisoryRun(models.Model):
    """From where the tokens of advisory locks count in this run of a MariaDB or MySQL server.

    In a second row ``base`` is the greatest token that was noted.
    """

    id = models.SmallIntegerField(primary_key=True)
    run = models.CharField(max_length=100)
    first = models.BigIntegerField()
    base = models.BigIntegerField()

    class Meta:
        db_table = "distlock_advisory_run"
        default_permissions = ()
        verbose_name = "run of a database server"

    def __str__(self) -> str:
        return self.run


class HeldLock(LockRow):
    """The locks of all aliases in the admin: an entry of its index, and the permissions.

    A proxy, which has no table: what it shows comes from the stores.
    """

    class Meta:
        proxy = True
        default_permissions = ("view",)
        permissions = (("release_heldlock", "Can release locks that others hold"),)
        verbose_name = _("lock")
        verbose_name_plural = _("Locks")


class ForcedRelease(models.Model):
    """A forced release: by whom, when, and who held the lock. See `history`."""

    class Way(models.TextChoices):
        """What it was broken by."""

        PAGE = "page", _("the Locks page")
        COMMAND = "command", _("manage.py locks")
        CODE = "code", _("a program")

    at = models.DateTimeField(_("time"), auto_now_add=True, db_index=True)
    alias = models.CharField(_("alias"), max_length=200)
    name = models.TextField(_("lock"))
    token = models.BigIntegerField(_("fencing token"), null=True, blank=True)
    holder = models.TextField(_("holder"), default="", blank=True)
    by = models.CharField(_("released by"), max_length=200, default="", blank=True)
    way = models.CharField(_("released through"), max_length=10, choices=Way, default=Way.CODE)
    why = models.CharField(_("reason"), max_length=500, default="", blank=True)

    class Meta:
        db_table = "distlock_forced"
        default_permissions = ("view",)
        ordering = ("-at", "-pk")
        verbose_name = _("forced release")
        verbose_name_plural = _("Forced releases")

    def __str__(self) -> str:
        return shown(self.name, 100)


class FencedModel(models.Model):
    """Gives a model's rows a fence, and its manager the method ``fenced(lease)``."""

    fence = FencingTokenField()
    fence_mark = FenceMarkField()

    objects: ClassVar[FencedManager[Self]] = FencedManager()

    class Meta:
        abstract = True
