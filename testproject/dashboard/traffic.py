"""One process of the traffic: people who buy, jobs that run, and some that crash.

Started by the dashboard as ``python -m testproject.dashboard.traffic NUMBER``; it ends when its
input does.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import django

THREADS = 7
LINES = 6  # of an export that somebody reads, before he has seen enough
PEOPLE = ("ada", "grace", "linus", "margaret", "wei")

over = threading.Event()


def main(number: int) -> None:
    """Make traffic until the dashboard goes away."""
    signal.signal(signal.SIGTERM, _end)
    django.setup()
    logging.disable(logging.WARNING)  # who loses a lock here was meant to
    chance = random.Random(number)
    threads = [
        threading.Thread(target=_live, args=(chance.random(), each), name=f"till-{each}")
        for each in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    # Without a buffer: what is read is nothing, until the dashboard has ended.
    with suppress(InterruptedError):
        os.read(0, 1)
    over.set()
    for thread in threads:
        thread.join()


def _end(number: int, frame: FrameType | None) -> None:
    over.set()
    raise InterruptedError


def _live(seed: float, number: int) -> None:
    from django.db import connections

    from django_distlock import LockError, locks

    chance = random.Random(seed)
    order: list[str] = []
    while not over.wait(chance.uniform(0.1, 1.5)):
        if not order:  # each store has its turn before one has a second
            order = chance.sample(list(locks), len(list(locks)))
        alias = order.pop()
        with suppress(LockError):
            chance.choices(DEEDS, WEIGHTS)[0](chance, alias)
        connections.close_all()


# -- what is done ----------------------------------------------------------------------------------


def _invoice(chance: random.Random, alias: str) -> None:
    """Work on an invoice; who finds it taken does something else."""
    from django_distlock import lock

    name = f"invoice:{chance.randint(1, 60)}"
    who = {"user": chance.choice(PEOPLE)}
    if lease := lock(name, using=alias, ttl=20, wait=0, metadata=who).acquire():
        with lease:
            over.wait(chance.uniform(1, 15))


def _stock(chance: random.Random, alias: str) -> None:
    """Wait for one of a few things that everybody wants, mostly where waiters are counted."""
    from django_distlock import lock, locks

    counting = [each for each in locks if locks[each].counts_waiters]
    if counting and chance.random() < 0.7:
        alias = chance.choice(counting)
    with lock(f"stock:{chance.randint(1, 2)}", using=alias, ttl=10, wait=8):
        over.wait(chance.uniform(0.5, 3))


def _report(chance: random.Random, alias: str) -> None:
    """Do something that takes long."""
    from django_distlock import lock

    tenant = chance.choice(("acme", "globex", "initech"))
    about = {"tenant": tenant, "rows": chance.randint(1000, 90_000)}
    if lease := lock(
        f"report/{tenant}/2026", using=alias, ttl=30, wait=0, metadata=about
    ).acquire():
        with lease:
            over.wait(chance.uniform(20, 90))


def _catalogue(chance: random.Random, alias: str) -> None:
    """Read the catalogue with others, or rebuild it alone."""
    from django_distlock import lock, locks

    alias = chance.choice([each for each in locks if locks[each].supports_shared])
    reads = chance.random() < 0.8
    with lock("catalogue", using=alias, ttl=15, wait=5, shared=reads):
        over.wait(chance.uniform(2, 9) if reads else 1)


def _partner(chance: random.Random, alias: str) -> None:
    """Ask the partner's API, which takes three requests at a time."""
    from django_distlock import lock, locks

    alias = chance.choice([each for each in locks if locks[each].supports_limit])
    with lock("partner-api", using=alias, ttl=15, wait=3, limit=3):
        over.wait(chance.uniform(1, 6))


def _crash(chance: random.Random, alias: str) -> None:
    """Take a lock, and be gone: it frees itself when its ttl is over."""
    from django_distlock import lock

    lock(f"upload:{chance.randint(1, 20)}", using=alias, ttl=25, wait=0, renew=False).acquire()


def _buy(chance: random.Random, alias: str) -> None:
    """Buy something in the shop, as its page does."""
    from django.test import Client

    where = f"/buy/{chance.randint(1, 6)}/"
    answer = {"quantity": 1, "buyer": chance.choice(PEOPLE)}
    Client(SERVER_NAME="localhost").post(where, answer)


def _export(chance: random.Random, alias: str) -> None:
    """Work in the back office, by its locked views: an export that is read slowly, and a delivery.

    The export holds its lock to its last line, or until its reader goes away.
    """
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get(username="admin"))
    client.post(f"/restock/{chance.randint(1, 6)}/", {"pieces": chance.randint(1, 5)})
    response = client.get("/orders.csv")
    if response.streaming:  # else somebody reads one already
        for _line, _piece in zip(range(LINES), response, strict=False):
            over.wait(chance.uniform(1, 3))
    response.close()
    client.logout()


def _tasks(chance: random.Random, alias: str) -> None:
    """Run the shop's tasks, where they are sent."""
    from testproject.shop import sales, tasks
    from testproject.shop.models import Order

    order = Order.objects.filter(parcel="").first()
    if order is not None:
        tasks.pack_order.apply((order.pk, f"P-{chance.randint(1000, 9999)}"), throw=False)
    tasks.count_stock.apply(throw=False)
    sales.price_list()


DEEDS: tuple[Callable[[random.Random, str], None], ...]
DEEDS = (_invoice, _stock, _report, _catalogue, _partner, _crash, _buy, _export, _tasks)
WEIGHTS = (8, 5, 3, 4, 4, 1, 2, 2, 1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
