"""Make the dashboard's tables, products and login."""

from __future__ import annotations

import django
from django.core.management import call_command


def main() -> None:
    """Make them."""
    django.setup()
    from django.db import connections

    for database in connections:
        call_command("migrate", database=database, verbosity=0)
    call_command("loaddata", "products", verbosity=0)
    # The password stands in DJANGO_SUPERUSER_PASSWORD.
    call_command("createsuperuser", interactive=False, username="admin", email="", verbosity=0)


if __name__ == "__main__":
    main()
