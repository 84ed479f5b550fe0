"""The row backend's tables without the index for LIKE, as 0002 does it for the lock table."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def drop_pattern_index(apps: Any, schema_editor: Any) -> None:
    """Drop it: a digest is only ever compared whole, and each row would be kept there again."""
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return
    for table in ("distlock_row", "distlock_row_token"):
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, table)
        for name, about in found.items():
            if about["index"] and not about["primary_key"] and about["columns"] == ["digest"]:
                schema_editor.execute(f"DROP INDEX {schema_editor.quote_name(name)}")


class Migration(migrations.Migration):
    # By itself: Django makes that index when the migration that makes the table ends.
    dependencies = [("django_distlock", "0003_row")]

    operations = [
        migrations.RunPython(drop_pattern_index, migrations.RunPython.noop, elidable=True),
    ]
