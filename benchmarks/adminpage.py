"""Measure the Locks page of the admin over three stores: SQLite, PostgreSQL and Redis.

    python -m benchmarks.adminpage [--locks 10000] [--rounds 15] [--json out.json]

Prints how long the page and its refresh take with so many locks held, how many bytes the refresh
sends, how many statements each makes, and how long the page takes while Redis is stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers import Redis
from tests.servers.postgresql import PostgreSQL

from .stores import STORES

TTL = 3600.0
WANTED = {"page ms": 300.0, "refresh kB": 100.0, "hanging s": 2.5}


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--locks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    file = STORES["sqlite"]()
    postgresql, redis = PostgreSQL(durable=True), Redis(persistent=False)
    try:
        file.start()
        postgresql.start()
        redis.start()
        _set_up(file.settings()["DATABASES"]["default"], postgresql.create_database("b"), redis)
        figures = _measure(redis, options.locks, options.rounds)
    finally:
        redis.stop()
        postgresql.stop()
        file.stop()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{options.locks} locks over 3 stores, {os.cpu_count()} cores, load {load}")
    for what, got in figures.items():
        judged = ""
        if what in WANTED:
            verdict = "reached" if got <= WANTED[what] else "MISSED"
            judged = f"  (wanted: <= {WANTED[what]:g}, {verdict})"
        print(f"  {what:<28} {got}{judged}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def _set_up(file: dict[str, Any], server: dict[str, Any], redis: Redis) -> None:
    """Set Django up as for the tests in the browser."""
    table = "django_distlock.backends.table.TableBackend"
    in_redis = "django_distlock.backends.redis.RedisBackend"
    site = {
        "file": file["NAME"],
        "debug": False,
        "databases": {"file": file, "server": server},
        "distlocks": {
            "default": {"BACKEND": table, "LOCATION": "file"},
            "server": {"BACKEND": table, "LOCATION": "server"},
            "redis": {"BACKEND": in_redis, "LOCATION": redis.url()},
        },
    }
    os.environ["DISTLOCK_BROWSER_SITE"] = json.dumps(site)
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.browser.site.settings"
    import django
    from django.core.management import call_command

    django.setup()
    for database in ("default", "server"):
        call_command("migrate", database=database, verbosity=0)


def _hold(number: int) -> None:
    """Take so many locks, spread over the aliases; nobody renews them."""
    from django_distlock import locks
    from django_distlock.core.holder import this_note
    from django_distlock.core.values import Claim

    backends = locks.all()
    note = this_note({"user": "ada", "request": "0123456789"})
    for each in range(number):
        backend = backends[each % len(backends)]
        name = f"invoice:{each}:of:customer:{each % 97}"
        claim = Claim(name, backend.key(name), os.urandom(16).hex(), TTL, note)
        backend.try_acquire(claim, 5.0)


def _measure(redis: Redis, number: int, rounds: int) -> dict[str, float]:
    from django.contrib.auth.models import User
    from django.db import connections
    from django.test import Client

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.create_superuser("boss"))
    where = "/admin/django_distlock/heldlock/"

    def ask(path: str) -> tuple[float, bytes]:
        begun = time.perf_counter()
        answer = client.get(f"{where}{path}")
        took = time.perf_counter() - begun
        assert answer.status_code == 200, answer.status_code
        return took * 1000, answer.content

    def median(path: str) -> float:
        return round(statistics.median(ask(path)[0] for _ in range(rounds)), 1)

    def processor(path: str) -> float:
        """Return what is left of it when nobody else uses the machine."""
        begun = time.process_time()
        for _ in range(rounds):
            ask(path)
        return round(1000 * (time.process_time() - begun) / rounds, 1)

    def statements(path: str) -> int:
        asked = 0

        def count(execute: Callable[..., Any], *args: Any) -> Any:
            nonlocal asked
            asked += 1
            return execute(*args)

        with connections["default"].execute_wrapper(count):
            ask(path)
        return asked

    ask("")
    figures = {"empty page ms": median("")}
    _hold(number)
    assert f"{number} locks are held" in ask("")[1].decode()
    figures["page ms"] = median("")
    figures["page, CPU ms"] = processor("")
    figures["searched page ms"] = median("?q=customer:13&o=left")
    figures["refresh ms"] = median("refresh/")
    figures["refresh kB"] = round(len(ask("refresh/")[1]) / 1000, 1)
    figures["statements of the request"] = statements("")
    redis.pause()
    try:
        first, again = ask("")[0], ask("")[0]
    finally:
        redis.resume()
    figures["hanging s"] = round(first / 1000, 2)
    figures["hanging, again ms"] = round(again, 1)
    return figures


if __name__ == "__main__":
    main()
