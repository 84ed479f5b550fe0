"""The parcel of an order, and the fence of who packs it."""

from __future__ import annotations

from django.db import migrations, models

import django_distlock


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="order",
            name="fence",
            field=django_distlock.FencingTokenField(default=0, editable=False),
        ),
        migrations.AddField(
            model_name="order",
            name="fence_mark",
            field=django_distlock.FenceMarkField(
                blank=True, default="", editable=False, max_length=32
            ),
        ),
        migrations.AddField(
            model_name="order",
            name="parcel",
            field=models.CharField(
                blank=True,
                default="",
                help_text="The parcel that it was packed into.",
                max_length=100,
            ),
        ),
    ]
