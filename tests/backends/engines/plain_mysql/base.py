"""A MariaDB that passes for an old MySQL, for which the lock table has no text."""

from __future__ import annotations

from django.db.backends.mysql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Says that it is not MariaDB."""

    mysql_is_mariadb = False
    mysql_version = (8, 0, 11)

    def check_database_version_supported(self) -> None:
        """Let it pass: from Django 6.1 on none so old does."""
