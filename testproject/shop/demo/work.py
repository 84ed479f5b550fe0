"""What a worker does: read the stock, think, write it back, and order."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from django.db import OperationalError, transaction

from django_distlock import Lease, Lock, LockTimeoutError, lock, locks
from testproject.shop.models import Order, Product

from .jobs import CALL, HOLD, Job
from .journal import ASKED, DONE, HELD, READY, Journal, Turn, now


def warm_up(job: Job, journal: Journal) -> None:
    """Open the connections, so that the race does not measure that."""
    Product.objects.filter(pk=job.product).exists()
    if job.alias is not None:
        _lock(job).locked()
    journal.event(READY)


def do(job: Job, journal: Journal, worker: int) -> None:
    """Do the job, and write down what happened."""
    if job.kind == HOLD:
        _hold(job, journal)
        return
    if job.kind == CALL:
        _call(job, journal, worker)
        return
    turn = _unlocked_turn if job.alias is None else _locked_turn
    journal.event(ASKED)
    while (done := turn(job, worker)).reference is not None:
        journal.turn(done)
        # A buyer does something else before the next purchase. Who asks again at once takes the
        # lock from under those who poll for it, and there would be no hand-offs to measure.
        time.sleep(job.think)
    journal.turn(done)
    journal.event(DONE)


def _lock(job: Job) -> Lock:
    if job.alias is None:
        raise ValueError("this job has no lock")
    return lock(job.lock_name, using=job.alias, ttl=job.ttl, wait=job.wait, limit=job.limit)


def _locked_turn(job: Job, worker: int) -> Turn:
    asked = now()
    while True:
        try:
            with _lock(job) as lease:
                granted = now()
                reference = _buy(job, worker, _token(lease))
                released = now()  # just before; the release itself counts as part of the hand-off
        except LockTimeoutError:
            continue  # nothing was bought; the wait goes on and is counted from its beginning
        return Turn(worker, asked, granted, released, reference)


def _token(lease: Lease) -> int | None:
    return lease.fencing_token if locks[lease.alias].supports_fencing else None


def _unlocked_turn(job: Job, worker: int) -> Turn:
    asked = now()
    reference = _buy(job, worker, None, write=_write_when_free)
    return Turn(worker, asked, asked, now(), reference)


def _hold(job: Job, journal: Journal) -> None:
    with _lock(job) as lease:
        journal.event(HELD, fencing_token=lease.fencing_token)
        time.sleep(job.think)


def _call(job: Job, journal: Journal, worker: int) -> None:
    for _ in range(job.calls):
        asked = now()
        with _lock(job) as lease:
            granted = now()
            time.sleep(job.think)
            released = now()
        journal.turn(Turn(worker, asked, granted, released, None, lease.slot))
    journal.event(DONE)


def _write(product: int, stock: int, worker: int, token: int | None) -> str:
    with transaction.atomic():
        Product.objects.filter(pk=product).update(stock=stock)
        reference = uuid.uuid4()
        Order.objects.create(
            product_id=product,
            buyer=f"worker {worker}",
            reference=reference,
            fencing_token=token,
        )
    return str(reference)


def _write_when_free(product: int, stock: int, worker: int, token: int | None) -> str:
    """Write as soon as SQLite's single writer lets us; nothing else is tried again."""
    while True:
        try:
            return _write(product, stock, worker, token)
        except OperationalError as error:
            if "database is locked" not in str(error):
                raise


def _buy(
    job: Job,
    worker: int,
    token: int | None,
    write: Callable[[int, int, int, int | None], str] = _write,
) -> str | None:
    """Buy one piece the classic way, which is only right when nobody else does so meanwhile."""
    stock = Product.objects.values_list("stock", flat=True).get(pk=job.product)
    if stock < 1:
        return None
    time.sleep(job.think)
    return write(job.product, stock - 1, worker, token)
