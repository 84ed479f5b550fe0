"""Which locks the demo runs, and whether it can run at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from django.db.migrations.executor import MigrationExecutor
from django.db.utils import Error as DatabaseError

from django_distlock import LockError, lock, locks
from testproject.shop.models import Product

from .crew import DemoError

PROBE = "demo:probe"


def technique_of(alias: str) -> str:
    """Name the technique of an alias after its backend's class."""
    name = type(locks[alias]).__name__.removesuffix("Backend").lower()
    return f"{name}, UNSAFE" if is_unsafe(alias) else name


def is_unsafe(alias: str) -> bool:
    """Tell whether an alias is there to show what not to do."""
    return bool(getattr(locks[alias], "unsafe", False))


def unsafe_alias(technique: str) -> str:
    """Return the alias of a technique that is there to show what not to do."""
    for alias in locks:
        if is_unsafe(alias) and technique_of(alias).startswith(f"{technique},"):
            return alias
    raise DemoError(
        f"The technique {technique!r} needs a Redis: name its URL in SHOP_REDIS, for example "
        "SHOP_REDIS=redis://localhost:6379/0."
    )


def choose(asked: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the aliases to run, and a remark about each one that is not run.

    Without a wish these are all whose locks hold over several processes. An alias that the user
    named is run whatever it is.
    """
    known = list(locks)
    if unknown := [alias for alias in asked if alias not in known]:
        raise DemoError(
            f"No such alias in DISTLOCKS: {', '.join(unknown)}. Known: {', '.join(known)}."
        )
    if asked:
        return list(dict.fromkeys(asked)), []
    known = [alias for alias in known if not is_unsafe(alias)]
    chosen = [alias for alias in known if locks[alias].scope != "process"]
    remarks = [
        f"Not run: {alias} ({type(locks[alias]).__name__}) works within one process only."
        for alias in known
        if alias not in chosen
    ]
    return chosen, remarks


def check_ready(aliases: Iterable[str]) -> None:
    """Raise DemoError, with what to do, when a table is missing or a store does not answer."""
    shop = router.db_for_write(Product)
    connection = connections[shop]
    if isinstance(connection, SQLite) and connection.is_in_memory_db():
        raise DemoError("The demo needs a database that several processes can open.")
    _check_migrated(shop, "shop")
    for alias in aliases:
        if (database := _database_of(alias)) is not None:
            _check_migrated(database, "django_distlock")
        try:
            lock(PROBE, using=alias).locked()
        except LockError as error:
            raise DemoError(str(error)) from error


def _database_of(alias: str) -> str | None:
    """Return the database in which an alias keeps its locks, if it is one of this project."""
    place = getattr(locks[alias], "database", None)
    return place if place in settings.DATABASES else None


def _check_migrated(database: str, app: str) -> None:
    try:
        executor = MigrationExecutor(connections[database])
    except DatabaseError as error:
        raise DemoError(f"The database {database!r} does not answer: {error}") from error
    leaves = [node for node in executor.loader.graph.leaf_nodes() if node[0] == app]
    if executor.migration_plan(leaves):
        option = "" if database == DEFAULT_DB_ALIAS else f" --database {database}"
        raise DemoError(f"Tables of {app} are missing: run migrate (manage.py migrate{option}).")
