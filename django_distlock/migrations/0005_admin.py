"""The history of forced releases, and the permissions of the Locks page."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_distlock", "0004_one_index_row"),
    ]

    operations = [
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
    ]
