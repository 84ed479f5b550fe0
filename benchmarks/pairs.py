"""Measure acquire + release, uncontended, beside the bare statements on the same connection.

    python -m benchmarks.pairs [--stores sqlite postgresql mariadb] [--rounds 9] [--json FILE]

Client and server share one core, so that the figure is work, not luck in scheduling. The library
and the floor take turns within each round, so that a noisy machine hits both alike; medians are
printed. The floor is what a careful programmer would write by hand: the same statements of the
lock table, through `connection.cursor()`, without owners, deadlines, renewal or errors. PostgreSQL
and MariaDB wait for the disk at each commit, as in production.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers import DATABASES, STORES, DatabaseServer

SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"},
}
SECONDS = 0.25  # of one side of one round


def set_up(databases: dict[str, dict[str, Any]]) -> None:
    """Configure Django with one table alias a database, and migrate."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    table = "django_distlock.backends.table.TableBackend"
    settings.configure(
        INSTALLED_APPS=["django_distlock"],
        DATABASES={"default": next(iter(databases.values())), **databases},
        DISTLOCKS={name: {"BACKEND": table, "LOCATION": name} for name in databases},
        USE_TZ=True,
    )
    django.setup()
    for name in databases:
        call_command("migrate", database=name, verbosity=0)


def library(store: str) -> Callable[[], None]:
    """Return one pair through the library."""
    from django_distlock import lock

    guard = lock("bench:library", using=store)

    def pair() -> None:
        with guard:
            pass

    return pair


def floor(store: str) -> Callable[[], None]:
    """Return one pair of the bare statements."""
    from django.db import connections

    from django_distlock import locks
    from django_distlock.backends.table import TableBackend
    from django_distlock.backends.table.statements import TextStatements
    from django_distlock.values import Claim

    backend = locks[store]
    assert isinstance(backend, TableBackend)
    statements = backend.statements()
    assert isinstance(statements, TextStatements)
    dialect = statements.dialect
    claim = Claim("bench:floor", backend.key("bench:floor"), secrets.token_hex(16), 30.0)
    connection = connections[store]

    def pair() -> None:
        with connection.cursor() as cursor:
            cursor.execute(dialect.acquire, dialect.parameters(claim, "bench:floor"))
            cursor.fetchall()
            cursor.execute(dialect.release, dialect.parameters(claim, ""))

    return pair


def per_second(pair: Callable[[], None]) -> float:
    """Return how many pairs a second were done in SECONDS."""
    done, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS:
        pair()
        done += 1
    return done / passed


def measure(store: str, rounds: int) -> dict[str, Any]:
    """Return the medians of ``rounds`` interleaved rounds for one store."""
    sides = {"library": library(store), "floor": floor(store)}
    for pair in sides.values():
        per_second(pair)
    seen: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, pair in sides.items():
            seen[name].append(per_second(pair))
    ratios = [a / b for a, b in zip(seen["library"], seen["floor"], strict=True)]
    return {
        "store": store,
        "library_pairs_per_s": round(statistics.median(seen["library"])),
        "floor_pairs_per_s": round(statistics.median(seen["floor"])),
        "ratio": round(statistics.median(ratios), 3),
    }


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    servers: dict[str, DatabaseServer] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            databases: dict[str, dict[str, Any]] = {}
            for store in options.stores:
                if store in DATABASES:
                    servers[store] = DATABASES[store](durable=True).start()
                    databases[store] = servers[store].create_database("bench")
                else:
                    databases[store] = {**SQLITE, "NAME": f"{folder}/bench.sqlite3"}
            set_up(databases)
            rows = [measure(store, options.rounds) for store in options.stores]
        finally:
            for server in servers.values():
                server.stop()
    print(f"{'store':<12}{'library/s':>12}{'floor/s':>12}{'ratio':>8}")
    for row in rows:
        figures = f"{row['library_pairs_per_s']:>12}{row['floor_pairs_per_s']:>12}"
        print(f"{row['store']:<12}{figures}{row['ratio']:>8}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
