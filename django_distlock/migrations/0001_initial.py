"""The tables of the locks that are kept in a database, and of what the Locks page writes down."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

TABLES = ("distlock_lock", "distlock_row", "distlock_row_token", "distlock_row_session")


def settle(apps: Any, schema_editor: Any) -> None:
    """Make of the tables what Django cannot say of them."""
    connection = schema_editor.connection
    made = connection.introspection.table_names()  # a router may have kept some of them away
    if connection.vendor == "postgresql":
        # Free room on the pages, so that updates of a row stay on its page (HOT).
        for table in filter(made.__contains__, TABLES):
            schema_editor.execute(f"ALTER TABLE {table} SET (fillfactor = 60)")
        # The index for LIKE that Django makes last of all: a digest is only compared whole, and
        # each row would be kept there again.
        schema_editor.deferred_sql[:] = [
            each for each in schema_editor.deferred_sql if not _is_of_a_digest(each)
        ]
    elif connection.vendor == "mysql" and "distlock_row" in made:
        # Whatever the server's default is: no other engine has row locks.
        schema_editor.execute("ALTER TABLE distlock_row ENGINE = InnoDB")


def _is_of_a_digest(statement: Any) -> bool:
    asked = getattr(statement, "references_column", None)
    return asked is not None and any(asked(table, "digest") for table in TABLES)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LockRow",
            fields=[
                (
                    "digest",
                    models.CharField(max_length=64, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("owner", models.CharField(default="", max_length=64)),
                ("token", models.BigIntegerField(default=0)),
                ("acquired", models.BigIntegerField(default=0)),
                ("expires", models.BigIntegerField(default=0)),
                ("note", models.TextField(default="")),
            ],
            options={
                "db_table": "distlock_lock",
                "verbose_name": "lock row",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="RowLock",
            fields=[
                (
                    "digest",
                    models.CharField(max_length=64, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("token", models.BigIntegerField(default=0)),
                ("session", models.BigIntegerField(default=0)),
                ("owner", models.CharField(default="", max_length=64)),
                ("note", models.TextField(default="")),
            ],
            options={
                "db_table": "distlock_row",
                "verbose_name": "row lock",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="RowToken",
            fields=[
                (
                    "digest",
                    models.CharField(max_length=64, primary_key=True, serialize=False),
                ),
                ("token", models.BigIntegerField()),
            ],
            options={
                "db_table": "distlock_row_token",
                "verbose_name": "row lock token",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="RowSession",
            fields=[
                ("session", models.BigIntegerField(primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("owner", models.CharField(max_length=64)),
                ("note", models.TextField(default="")),
            ],
            options={
                "db_table": "distlock_row_session",
                "verbose_name": "row lock session",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="AdvisoryHolder",
            fields=[
                ("token", models.BigAutoField(primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("name", models.TextField()),
                ("owner", models.CharField(max_length=64)),
                ("note", models.TextField(default="")),
                ("lock_key", models.CharField(max_length=64)),
                ("session", models.BigIntegerField()),
                ("acquired", models.BigIntegerField()),
                ("forced", models.SmallIntegerField(default=0)),
            ],
            options={
                "db_table": "distlock_advisory",
                "verbose_name": "advisory lock",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["digest"], name="distlock_advisory_digest"),
                    models.Index(fields=["session"], name="distlock_advisory_session"),
                ],
            },
        ),
        migrations.CreateModel(
            name="AdvisoryRun",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("run", models.CharField(max_length=100)),
                ("first", models.BigIntegerField()),
                ("base", models.BigIntegerField()),
            ],
            options={
                "db_table": "distlock_advisory_run",
                "verbose_name": "run of a database server",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="ForcedRelease",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(auto_now_add=True, db_index=True, verbose_name="time")),
                ("alias", models.CharField(max_length=200, verbose_name="alias")),
                ("name", models.TextField(verbose_name="lock")),
                (
                    "token",
                    models.BigIntegerField(blank=True, null=True, verbose_name="fencing token"),
                ),
                ("holder", models.TextField(blank=True, default="", verbose_name="holder")),
                (
                    "by",
                    models.CharField(
                        blank=True, default="", max_length=200, verbose_name="released by"
                    ),
                ),
                (
                    "way",
                    models.CharField(
                        choices=[
                            ("page", "the Locks page"),
                            ("command", "manage.py locks"),
                            ("code", "a program"),
                        ],
                        default="code",
                        max_length=10,
                        verbose_name="released through",
                    ),
                ),
                (
                    "why",
                    models.CharField(blank=True, default="", max_length=500, verbose_name="reason"),
                ),
            ],
            options={
                "verbose_name": "forced release",
                "verbose_name_plural": "Forced releases",
                "db_table": "distlock_forced",
                "ordering": ("-at", "-pk"),
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="HeldLock",
            fields=[],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "Locks",
                "permissions": (("release_heldlock", "Can release locks that others hold"),),
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_distlock.lockrow",),
        ),
        migrations.RunPython(
            settle,
            migrations.RunPython.noop,
            atomic=False,  # MySQL and MariaDB take no DDL in a transaction
            hints={"model_name": "lockrow"},  # for routers that go by it
            elidable=True,
        ),
    ]
