"""The stores: starting them, what Django is told, and counting the work that they do."""

from __future__ import annotations

from .base import Store
from .consul import OneConsul
from .databases import Mariadb, Mysql, Postgresql, Sqlite
from .etcd import OneEtcd
from .redis import OneRedis, Redlock
from .zookeeper import OneZooKeeper

__all__ = ["STORES", "Store", "set_up_django"]

STORES: dict[str, type[Store]] = {
    kind.name: kind
    for kind in (
        *(Sqlite, Postgresql, Mariadb, Mysql, OneRedis, Redlock),
        *(OneEtcd, OneConsul, OneZooKeeper),
    )
}


def set_up_django(store: Store, apps: list[str]) -> None:
    """Configure Django with the store, and make the tables if it has any."""
    import django
    from django.conf import settings
    from django.core.management import call_command
    from django.db import connections

    ours = ["django_distlock", "benchmarks.orm"] if store.has_tables else ["django_distlock"]
    settings.configure(
        INSTALLED_APPS=[*ours, *apps],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        SECRET_KEY="only for benchmarks",
        USE_TZ=True,
        **store.settings(),
    )
    django.setup()
    if store.has_tables:
        call_command("migrate", run_syncdb=True, verbosity=0)
        connections.close_all()
