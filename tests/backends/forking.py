"""Programs that fork, each a function of the store; `test_fork` runs them as processes.

``python -m tests.backends.forking SCENARIO STORE``: ends with 0 if all was as it should be, in the
parent and in every child.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NoReturn, cast

from django.db import connections, transaction

from django_distlock import LeaseLostError, Lock, lock, locks
from django_distlock.backends.table import TableBackend, connection
from tests.backends.forking_tools import NAME, WHO, child, ended_well, refused, session, taken
from tests.backends.forking_wait_queues import in_the_wait_queue

BRIEF = 2.0  # a ttl that ends within the test unless it is renewed


# -- scenarios -----------------------------------------------------------------------------------


def holding(store: str, *, clean: bool = True) -> None:
    """Fork while holding: the lease is the parent's, and so is its connection."""
    lease = taken(store)
    before = session(store)

    def work() -> None:
        for call in (lease.check, lease.detach, lease.renew, lease.release):
            refused(call)
        assert lease.remaining() == 0
        assert lock(NAME, using=store, wait=0).acquire() is None
        assert lock(NAME, using=store).locked()
        assert session(store) != before
        taken(store, f"{NAME}:child").release()

    ended_well(child(work, clean=clean))
    assert session(store) == before
    lease.renew()
    lease.check()
    lease.release()
    assert not lock(NAME, using=store).locked()


def holding_and_killed(store: str) -> None:
    """As `holding`, but the child ends without Python's finalizers."""
    holding(store, clean=False)


def leaving_the_block(store: str) -> None:
    """A child that runs out of the parent's block is told, and frees nothing."""
    with lock(NAME, using=store) as lease:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                lease.release()
            except LeaseLostError:
                status = 0
            sys.exit(status)  # through the block, too
        ended_well(pid)
        lease.renew()
        assert lock(NAME, using=store).locked()
    assert not lock(NAME, using=store).locked()


def before_first_use(store: str) -> None:
    """Fork a process that has done nothing yet; all of them compete."""
    lock(NAME, using=store)
    compete(store)


def compete(store: str) -> None:
    """Let children count in a pipe, each turn under the lock."""
    read, write = os.pipe()
    os.write(write, b"\0")

    def work() -> None:
        for _ in range(5):
            with lock(NAME, using=store, wait=30):
                value = os.read(read, 1)[0]  # would block if two were here
                time.sleep(0.005)
                os.write(write, bytes([value + 1]))

    pids = [child(work) for _ in range(3)]
    work()
    for pid in pids:
        ended_well(pid)
    assert os.read(read, 1)[0] == 20


def connected_before_first_use(store: str) -> None:
    """Fork a process that has a connection, and has not used a lock yet."""
    before = session(store)

    def work() -> None:
        taken(store).release()
        assert session(store) != before

    ended_well(child(work))
    assert session(store) == before
    taken(store).release()


def reopened_in_the_child(store: str) -> None:
    """A child that opens the connection anew itself, as Django's parallel test runner does."""
    session(store)

    def work() -> None:
        mine = connections[store]
        mine.close()
        with transaction.atomic(using=store):
            taken(store).release()
            assert connections[store] is mine
            assert mine.in_atomic_block

    ended_well(child(work))
    connections[store].close()
    taken(store).release()


def under_the_watchdog(store: str) -> None:
    """Fork while the watchdog runs: it goes on in the parent, and begins anew in the child."""
    lease = taken(store, ttl=BRIEF)
    time.sleep(BRIEF / 2)

    def work() -> None:
        mine = taken(store, f"{NAME}:child", ttl=BRIEF)
        time.sleep(2 * BRIEF)
        mine.check()
        mine.release()

    ended_well(child(work))
    lease.check()
    lease.release()


def inside_contention(store: str) -> None:
    """Fork while another thread waits: the child has no part in that."""
    lease = taken(store)
    got: list[int] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        with lock(NAME, using=store, wait=30) as mine:
            got.append(mine.fencing_token)
        connections.close_all()

    waiter = threading.Thread(target=wait)
    waiter.start()
    waiting.wait(10)
    time.sleep(0.1)
    heard, told = os.pipe()

    def work() -> None:
        assert lock(NAME, using=store, wait=0).acquire() is None
        os.write(told, b".")
        with lock(NAME, using=store, wait=30) as mine:
            assert mine.fencing_token > lease.fencing_token

    pid = child(work)
    os.read(heard, 1)
    lease.release()
    waiter.join(30)
    ended_well(pid)
    assert got
    assert not lock(NAME, using=store).locked()


def in_a_transaction(store: str) -> None:
    """A child that runs out of the parent's transaction ends neither that nor its lock."""
    connections.settings[store]["CONN_MAX_AGE"] = None  # so that idle connections are kept
    with transaction.atomic(using=store):
        before = session(store)
        with lock(NAME, using=store):
            pass
        pid = os.fork()
        if not pid:
            if connections[store].vendor != "sqlite":
                taken(store, f"{NAME}:child").release()
                assert lock(NAME, using=store, wait=0).acquire() is None
            sys.exit(0)  # through the atomic block
        ended_well(pid)
        assert session(store) == before
        assert connections[store].in_atomic_block
        with lock(NAME, using=store):
            pass
    assert not lock(NAME, using=store).locked()
    connections.close_all()


def private(backend: TableBackend) -> object:
    """Return the session of the idle connection that a backend keeps for locks in transactions."""
    ((_, idle),) = backend._connections._idle._all
    with idle.cursor() as cursor:
        cursor.execute(WHO[idle.vendor])
        return cursor.fetchone()[0]


def with_an_idle_connection(store: str) -> None:
    """A child leaves the parent's idle connection alone, also by a backend that it inherited."""
    connection.IDLE = 3600.0  # however slow the machine is
    connections.settings[store]["CONN_MAX_AGE"] = None
    backend = cast("TableBackend", locks[store])
    with transaction.atomic(using=store):
        taken(store).release()
    before = private(backend)

    def work() -> None:
        gc.collect()
        taken(store, f"{NAME}:child").release()  # on a connection of the child's own
        with transaction.atomic(using=store):
            assert list(backend.held(NAME)) == []
        assert private(backend) != before

    for clean in (True, False):
        ended_well(child(work, clean=clean))
        assert private(backend) == before
    with transaction.atomic(using=store):
        taken(store).release()
    connections.close_all()


def count(member: Lock, turns: int, results: Connection) -> None:
    """Take a lock that came by fork or by pickle, and send the tokens."""
    tokens = []
    for _ in range(turns):
        with member as lease:
            tokens.append(lease.fencing_token)
            time.sleep(0.002)
    connections.close_all()
    results.send(tokens)


def multiprocessed(store: str, method: str) -> None:
    """Start processes by `multiprocessing`."""
    context = multiprocessing.get_context(method)
    member = lock(NAME, using=store, wait=30)
    taken(store).release()
    pipes, workers = [], []
    for _ in range(3):
        mine, theirs = context.Pipe(duplex=False)
        workers.append(context.Process(target=count, args=(member, 5, theirs)))  # type: ignore[attr-defined]
        pipes.append(mine)
        workers[-1].start()
        theirs.close()
    tokens = [token for pipe in pipes for token in pipe.recv()]
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert len(set(tokens)) == 15
    taken(store).release()


def multiprocessing_fork(store: str) -> None:
    """Start processes by fork."""
    multiprocessed(store, "fork")


def multiprocessing_spawn(store: str) -> None:
    """Start processes by spawn."""
    multiprocessed(store, "spawn")


def multiprocessing_forkserver(store: str) -> None:
    """Start processes by the fork server."""
    multiprocessed(store, "forkserver")


SCENARIOS: dict[str, Callable[[str], None]] = {
    scenario.__name__: scenario
    for scenario in (
        holding,
        holding_and_killed,
        leaving_the_block,
        before_first_use,
        connected_before_first_use,
        reopened_in_the_child,
        under_the_watchdog,
        inside_contention,
        in_a_transaction,
        multiprocessing_fork,
        multiprocessing_spawn,
        multiprocessing_forkserver,
        in_the_wait_queue,
    )
}

ON_SERVERS: dict[str, Callable[[str], None]] = {
    "with_an_idle_connection": with_an_idle_connection,
}
"""Those about connections that SQLite does not have."""


def main() -> NoReturn:
    """Run the scenario that the command line names."""
    _, scenario, store = sys.argv
    (SCENARIOS | ON_SERVERS)[scenario](store)
    connections.close_all()
    sys.exit(0)


if __name__ == "__main__":
    main()
