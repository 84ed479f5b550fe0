"""The lock table."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models


def leave_room(apps: Any, schema_editor: Any) -> None:
    """Leave free room on PostgreSQL's pages, so that updates of a row stay on its page (HOT)."""
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute("ALTER TABLE distlock_lock SET (fillfactor = 60)")


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
            options={"db_table": "distlock_lock", "verbose_name": "lock row"},
        ),
        migrations.RunPython(
            leave_room,
            migrations.RunPython.noop,
            hints={"model_name": "lockrow"},  # for routers that go by it
            elidable=True,
        ),
    ]
