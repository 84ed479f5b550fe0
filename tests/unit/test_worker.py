"""The background thread: order, idle end, restart, closing, and jobs that fail."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from functools import partial

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_distlock.core import clock
from django_distlock.core import worker as module
from django_distlock.core.worker import Worker, events

from .tools import LIMIT, eventually


@pytest.fixture
def _short_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.05)


def run_all(worker: Worker) -> None:
    """Wait until everything that is due has been done."""
    done = threading.Event()
    worker.submit(done.set)
    assert done.wait(LIMIT)


def test_jobs_run_in_the_order_given_on_one_thread() -> None:
    worker = Worker("unit")
    seen: list[tuple[int, str]] = []

    def job(number: int) -> None:
        seen.append((number, threading.current_thread().name))

    for number in range(50):
        worker.submit(partial(job, number))
    run_all(worker)
    assert seen == [(number, "unit") for number in range(50)]
    worker.close()


def test_what_is_due_later_runs_later() -> None:
    worker = Worker("unit")
    seen: list[str] = []
    done = threading.Event()
    began = time.monotonic()
    worker.submit(done.set, 0.25)
    worker.submit(lambda: seen.append("third"), 0.2)
    worker.submit(lambda: seen.append("second"), 0.1)
    worker.submit(lambda: seen.append("first"))
    assert done.wait(LIMIT)
    assert seen == ["first", "second", "third"]
    assert time.monotonic() - began >= 0.2
    worker.close()


def test_a_sooner_job_overtakes_while_it_waits_for_a_later_one() -> None:
    worker = Worker("unit")
    worker.submit(lambda: None, 60.0)
    run_all(worker)
    worker.close()


def test_a_job_may_submit_another() -> None:
    worker = Worker("unit")
    done = threading.Event()
    worker.submit(lambda: worker.submit(done.set))
    assert done.wait(LIMIT)
    worker.close()


@pytest.mark.usefixtures("_short_idle")
def test_it_ends_when_idle_and_begins_anew() -> None:
    worker = Worker("unit")
    run_all(worker)
    first = worker._thread
    assert eventually(lambda: worker._thread is None)
    run_all(worker)
    assert worker._thread is not first
    worker.close()


@pytest.mark.usefixtures("_short_idle")
def test_it_does_not_end_while_something_is_due_later() -> None:
    worker = Worker("unit")
    done = threading.Event()
    worker.submit(done.set, 0.2)
    thread = worker._thread
    assert done.wait(LIMIT)
    assert worker._thread is thread
    worker.close()


def test_a_job_that_fails_is_logged_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("unit")

    def broken() -> None:
        raise ValueError("the job's own")

    worker.submit(broken)
    run_all(worker)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "A job of unit failed"
    assert record.exc_info is not None
    assert "the job's own" in caplog.text
    worker.close()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_job_that_wants_to_end_the_process_does_not_end_it(error: type[BaseException]) -> None:
    # A callback of `on_lost` that calls sys.exit() ends no process, being on a thread: but all
    # later callbacks have to be called.
    worker = Worker("unit")

    def leave(reason: type[BaseException]) -> None:
        raise reason

    worker.submit(partial(leave, error))
    done = threading.Event()
    worker.submit(done.set)
    assert done.wait(LIMIT), "the worker is dead"
    worker.close()


def test_what_the_jobs_opened_is_closed_when_nothing_is_due() -> None:
    seen: list[str] = []
    go = threading.Event()
    worker = Worker("unit", lambda: seen.append("tidy"))
    worker.submit(lambda: seen.append("first" if go.wait(LIMIT) else "never"))
    worker.submit(lambda: seen.append("second"))
    go.set()
    assert eventually(lambda: "tidy" in seen)
    assert seen == ["first", "second", "tidy"]
    worker.submit(lambda: seen.append("third"))
    assert eventually(lambda: len(seen) == 5)
    assert seen[3:] == ["third", "tidy"]
    worker.close()


def test_tidying_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise ValueError("cannot close")

    worker = Worker("unit", broken)
    run_all(worker)
    assert eventually(lambda: "cannot close" in caplog.text)
    run_all(worker)
    worker.close()


def test_closing_drops_what_is_not_begun_and_waits_for_what_is() -> None:
    worker = Worker("unit")
    begun, go, seen = threading.Event(), threading.Event(), list[str]()

    def job() -> None:
        begun.set()
        assert go.wait(LIMIT)
        seen.append("begun")

    worker.submit(job)
    worker.submit(lambda: seen.append("not begun"))
    assert begun.wait(LIMIT)
    threading.Timer(0.1, go.set).start()
    worker.close(LIMIT)
    assert seen == ["begun"]
    assert worker._thread is None
    worker.submit(lambda: seen.append("after"))
    assert worker._thread is None
    assert seen == ["begun"]


def test_closing_waits_no_longer_than_it_is_told() -> None:
    worker = Worker("unit")
    begun, go = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go.wait(LIMIT)

    worker.submit(job)
    assert begun.wait(LIMIT)
    worker.close(0.01)
    thread = worker._thread
    assert thread is not None
    assert thread.is_alive()
    go.set()
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_closing_what_never_ran_and_closing_twice() -> None:
    worker = Worker("unit")
    worker.close()
    worker.close()
    assert worker._thread is None


def test_a_job_may_close_its_own_worker() -> None:
    worker = Worker("unit")
    done = threading.Event()

    def job() -> None:
        worker.close()
        done.set()

    worker.submit(job)
    assert done.wait(LIMIT)
    assert eventually(lambda: worker._thread is None)


def test_draining_waits_for_what_is_due_and_under_way() -> None:
    worker = Worker("unit")
    begun, seen = threading.Event(), list[str]()

    def job() -> None:
        begun.set()
        time.sleep(0.1)
        seen.append("under way")

    worker.drain(clock.now() + LIMIT)  # nothing to wait for
    worker.submit(job)
    worker.submit(lambda: seen.append("due"))
    worker.submit(lambda: seen.append("not due"), 60.0)
    assert begun.wait(LIMIT)
    worker.drain(clock.now() + LIMIT)
    assert seen == ["under way", "due"]
    worker.close()


def test_draining_waits_no_longer_than_it_is_told() -> None:
    worker = Worker("unit")
    go = threading.Event()

    def job() -> None:
        go.wait(LIMIT)

    worker.submit(job)
    began = clock.now()
    worker.drain(began + 0.05)
    assert 0.05 <= clock.now() - began < 5
    go.set()
    worker.close()


PROGRAM = """
from django_distlock.core.worker import Worker
import time
worker = Worker("unit")
def job():
    time.sleep(0.2)
    print("done", flush=True)
worker.submit(job)
"""


def test_what_is_pending_is_done_before_the_interpreter_ends() -> None:
    # A release that a second Ctrl-C handed to the background, say.
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "done\n"


def test_a_finalizer_may_submit_while_its_thread_is_submitting() -> None:
    worker = Worker("unit")
    with worker._ready:
        run = threading.Event()
        worker.submit(run.set)
    assert run.wait(LIMIT)
    worker.close()


def test_the_events_close_their_database_connections() -> None:
    wrappers: list[BaseDatabaseWrapper] = []

    def job() -> None:
        wrapper = connections["default"]
        wrapper.run_on_commit = [(set(), lambda: None)]  # forgotten by close()
        wrappers.append(wrapper)

    events.submit(job)
    assert eventually(lambda: wrappers and not wrappers[0].run_on_commit)
