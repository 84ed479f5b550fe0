from __future__ import annotations

from django.db import migrations, models

import django_distlock


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("fence", django_distlock.FencingTokenField(default=0, editable=False)),
                (
                    "fence_mark",
                    django_distlock.FenceMarkField(
                        blank=True, default="", editable=False, max_length=32
                    ),
                ),
                ("reference", models.CharField(max_length=40, unique=True)),
                ("state", models.CharField(default="new", max_length=20)),
                ("events", models.JSONField(default=list)),
            ],
            options={
                "abstract": False,
            },
        ),
    ]
