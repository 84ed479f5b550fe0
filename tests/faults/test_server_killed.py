"""The server killed with -9 and started again, again and again, under those who take locks."""

from __future__ import annotations

import threading
import time
from functools import partial

from django_distlock import LockBackendError, lock
from tests.backends.storm import Turn, judge
from tests.backends.tools import Elsewhere, soon
from tests.faults.places import Place

THREADS = 4
ROUNDS = 3
TTL = 4.0  # much longer than the server is away: no lease is lost by time
MORE = 12  # grants before the server is killed again


def reached(what: list[LockBackendError], number: int) -> bool:
    return len(what) >= number


def test_grants_resume_and_tokens_keep_rising(served: Place, name: str) -> None:
    """What was granted is on record: nobody else is granted it after the restart."""
    assert served.server
    turns: list[Turn] = []
    errors: list[LockBackendError] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            try:
                with lock(name, using="own", ttl=TTL, wait=20) as lease:
                    begin = time.monotonic()
                    lease.check()
                    time.sleep(0.004)
                    end = time.monotonic()
                    lease.check()  # so it was sure at the end, too
                    turns.append(Turn(name, lease.fencing_token, begin, end, "released"))
            except LockBackendError as error:  # any other ends the test
                errors.append(error)
                time.sleep(0.02)

    def go_on() -> None:
        before = len(turns)
        assert soon(lambda: len(turns) >= before + MORE, 20), errors[-1:]

    workers = [Elsewhere(work).start() for _ in range(THREADS)]
    try:
        for _ in range(ROUNDS):
            go_on()
            served.server.kill()
            assert soon(partial(reached, errors, len(errors) + THREADS), 10)
            served.server.start()
        go_on()
    finally:
        over.set()
        for worker in workers:
            worker.result()
    assert judge(turns) == []
    assert all(error.alias == "own" and "Look at" in str(error) for error in errors)


def test_a_hold_outlives_the_server(served: Place, name: str) -> None:
    """Nobody who waits is granted what is held, although the server has forgotten its sessions."""
    assert served.server
    with lock(name, using="own", ttl=20, renew=False) as lease:
        for _ in range(2):
            served.server.kill()
            served.server.start()
            waiter = Elsewhere(lambda: lock(name, using="own", wait=0.2).acquire()).start()
            assert waiter.result() is None
            lease.renew()
    with lock(name, using="own") as later:
        assert later.fencing_token > lease.fencing_token
