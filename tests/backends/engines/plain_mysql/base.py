"""A MariaDB that passes for MySQL."""

from __future__ import annotations

from django.db.backends.mysql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Says that it is not MariaDB."""

    mysql_is_mariadb = False
