"""The tables of the row backend."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def leave_room(apps: Any, schema_editor: Any) -> None:
    """Leave free room on PostgreSQL's pages, so that updates stay on them (HOT); name the engine."""
    if schema_editor.connection.vendor == "postgresql":
        for table in ("distlock_row", "distlock_row_token", "distlock_row_session"):
            schema_editor.execute(f"ALTER TABLE {table} SET (fillfactor = 60)")
    elif schema_editor.connection.vendor == "mysql":
        # Whatever the server's default is: no other engine has row locks.
        schema_editor.execute("ALTER TABLE distlock_row ENGINE = InnoDB")


class Migration(migrations.Migration):
    dependencies = [("django_distlock", "0002_one_index")]

    operations = [
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
            options={"db_table": "distlock_row", "verbose_name": "row lock"},
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
            options={"db_table": "distlock_row_token", "verbose_name": "row lock token"},
        ),
        migrations.CreateModel(
            name="RowSession",
            fields=[
                ("session", models.BigIntegerField(primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("owner", models.CharField(max_length=64)),
                ("note", models.TextField(default="")),
            ],
            options={"db_table": "distlock_row_session", "verbose_name": "row lock session"},
        ),
        migrations.RunPython(
            leave_room,
            migrations.RunPython.noop,
            atomic=False,  # MySQL and MariaDB take no DDL in a transaction
            hints={"model_name": "rowlock"},  # for routers that go by it
            elidable=True,
        ),
    ]
