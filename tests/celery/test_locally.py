"""`locked_task` without a worker: definitions, calls, and tasks that run eagerly."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery, _state
from celery.app.task import Task
from celery.exceptions import Retry
from celery.signals import before_task_publish
from django.conf import settings

from django_distlock import (
    AlreadyHeldError,
    InvalidLockError,
    Lease,
    LockNotAcquiredError,
    UnsupportedOperationError,
    current_lease,
    lock,
    locks,
)
from django_distlock.contrib.celery import locked_task
from django_distlock.contrib.celery.once import OnceTask
from django_distlock.contrib.celery.spec import HEADER, Ticket
from django_distlock.core.durations import UNSET
from django_distlock.core.flow import run
from django_distlock.metrics import listen
from django_distlock.testing import hold_elsewhere
from tests.backends.tools import elsewhere

ENDS_WITH_ITS_CONNECTION = [
    alias for alias in ("row-postgresql", "row-mariadb", "zookeeper") if alias in settings.DISTLOCKS
]


def nothing() -> None:
    """Be a function."""


@contextmanager
def _state_kept() -> Iterator[None]:
    """Have the apps of the block get its shared tasks, and no others."""
    shared: set[Any] = vars(_state)["_on_app_finalizers"]
    before = set(shared)
    shared.clear()
    try:
        yield
    finally:
        shared.clear()
        shared.update(before)


def test_the_body_runs_under_its_lock(app: Celery, name: str) -> None:
    @locked_task("{key}", using="locmem", app=app)
    def task(key: str, lease: Lease | None = None) -> int:
        assert lock(key, using="locmem").locked()
        assert current_lease() is lease
        return current_lease().fencing_token

    assert task(name) > 0
    assert task.delay(key=name).get() > 0
    assert task.run(name) > 0
    assert not lock(name, using="locmem").locked()


@pytest.mark.parametrize("using", ENDS_WITH_ITS_CONNECTION)
@pytest.mark.parametrize("kept", [{"once": True}, {"min_hold": 1}], ids=["once", "min_hold"])
def test_a_lock_that_ends_with_its_connection_is_kept_for_nobody(
    app: Celery, name: str, using: str, kept: dict[str, Any]
) -> None:
    @locked_task("{key}", using=using, app=app, **kept)
    def task(key: str) -> None: ...

    with pytest.raises(UnsupportedOperationError, match="use another backend"):
        task.delay(name)
    assert not lock(name, using=using).locked()


@pytest.mark.parametrize("once", [False, True])
def test_metrics_call_it_by_its_template(app: Celery, name: str, once: bool) -> None:
    @locked_task("report:{key}", using="locmem", app=app, once=once)
    def task(key: str) -> None: ...

    seen: list[tuple[str, str]] = []
    stop = listen(lambda measured: seen.append((measured.label, measured.name)))
    try:
        task.delay(name).get()
    finally:
        stop()
    assert seen == [("report:{key}", f"report:{name}")] * 2


def test_the_self_of_a_bound_task_is_no_argument(app: Celery, name: str) -> None:
    @locked_task("{key}", using="locmem", app=app, bind=True)
    def task(self: Task[Any, Any], key: str, more: int = 1) -> tuple[str, bool]:
        return self.name, lock(key, using="locmem").locked()

    assert task(name) == (task.name, True)
    assert task.delay(name, more=2).get() == (task.name, True)
    with pytest.raises(InvalidLockError, match="no parameter"):
        locked_task("{self}", app=app, bind=True)(lambda self, key: None)


@pytest.mark.parametrize("once", [False, True])
def test_contention_where_it_is_called(app: Celery, name: str, once: bool) -> None:
    seen: list[Any] = []
    numbers = itertools.count()

    def make(how: Any) -> Any:
        def task(key: str) -> str:
            return "done"

        options: dict[str, Any] = {"using": "locmem", "app": app, "once": once}
        options |= {"name": f"{next(numbers)}", "on_contention": how}
        if how == "skip":
            options["default"] = 7
        decorate: Any = locked_task("{key}", **options)
        return decorate(task)

    with hold_elsewhere(name, using="locmem"):
        assert make("skip").delay(name).get() == 7
        assert make(lambda error, key: seen.append((error.name, key))).delay(name).get() is None
        for how in ("raise", "retry"):  # nobody is there who would run it later
            with pytest.raises(LockNotAcquiredError):
                make(how).delay(name)
            with pytest.raises(LockNotAcquiredError):
                make(how)(name)
    assert seen == [(name, name)]


@pytest.mark.parametrize(
    ("told", "least"),
    [(4.0, 4.0), (0.001, 0.1), (None, 20.0), (500.0, 20.0)],
    ids=["known", "about to end", "not known", "longer than the ttl"],
)
def test_a_retry_comes_again_when_the_lease_may_have_run_out(
    told: float | None, least: float
) -> None:
    """Of one that was held up many times: never later than a ttl, and up to a quarter."""
    error = LockNotAcquiredError("Held", name="a", retry_after=told)
    seen = [come_again(20, error, waits=99) for _ in range(50)]
    assert min(seen) >= least
    assert max(seen) <= least * 1.25
    assert max(seen) - min(seen) > least * 0.05  # so that those refused together do not come so


@pytest.mark.parametrize(("waits", "least"), [(0, 1), (1, 2), (3, 8), (4, 16), (5, 20)])
def test_a_retry_looks_soon_at_first(waits: int, least: float) -> None:
    error = LockNotAcquiredError("Held", name="a", retry_after=500)
    assert least <= come_again(20, error, waits=waits) <= least * 1.25


@pytest.mark.parametrize("waits", [0, 7])
def test_a_program_says_when_a_retry_comes_again(waits: int) -> None:
    error = LockNotAcquiredError("Held", name="a", retry_after=2)
    assert 40 <= come_again(20, error, waits=waits, countdown=40) <= 50


@pytest.mark.parametrize(("held", "least", "most"), [(8, 6, 10), (3600, 20, 25)])
def test_when_a_retry_comes_again_by_the_store(
    name: str, held: float, least: float, most: float
) -> None:
    with hold_elsewhere(name, using="locmem", ttl=held):
        assert least <= come_again(20, name, waits=99) <= most


def come_again(
    ttl: float, why: LockNotAcquiredError | str, *, waits: int = 0, **more: float
) -> float:
    """Return the countdown of a task whose lock is held, or that was refused with an error."""
    app = Celery("retried", broker="memory://", set_as_current=False)
    countdowns: list[float] = []

    def published(sender: Any, headers: dict[str, Any], **more: Any) -> None:
        left = datetime.fromisoformat(headers["eta"]) - datetime.now(UTC)
        countdowns.append(left.total_seconds())

    def refused(key: str) -> str:
        if isinstance(why, LockNotAcquiredError):
            raise why
        return why

    def body(key: str) -> None: ...

    options: dict[str, Any] = {"using": "locmem", "app": app, "ttl": ttl, "wait": 0, **more}
    decorate: Any = locked_task(refused, on_contention="retry", **options)
    task = decorate(body)
    before_task_publish.connect(published)
    headers = Ticket("a", "", "1", waits).added_to({})
    told: dict[str, Any] = {"args": ("a",), "kwargs": {}, "headers": headers}
    task.push_request(id="1", called_directly=False, is_eager=False, **told)
    try:
        with pytest.raises(Retry) as retry:
            task.run("a")
    finally:
        task.pop_request()
        before_task_publish.disconnect(published)
        app.close()
    [sent] = countdowns
    countdown: Any = retry.value.when
    assert countdown - 5 < sent <= countdown  # what is in the message is what is said
    return float(countdown)


def deliver(task: Any, name: str, headers: dict[str, Any], *, again: bool) -> Any:
    """Run a task as a worker does that was given its message, once more if ``again``."""
    told: dict[str, Any] = {"headers": headers, "delivery_info": {"redelivered": again}}
    task.push_request(id="1", args=(name,), called_directly=False, is_eager=False, **told)
    try:
        return task.run(name)
    finally:
        task.pop_request()


@pytest.mark.parametrize(("left", "begun"), [(30, True), (33, True), (300, False)])
def test_what_is_delivered_twice_runs_once_though_the_clock_it_is_judged_by_is_late(
    name: str, left: float, begun: bool
) -> None:
    """A statement that has waited for a row may tell the time at which it began to.

    The lease was renewed meanwhile, so more than its ttl seems to be left.
    """
    app = Celery("late", broker="memory://", set_as_current=False)

    def body(key: str) -> str:
        return "done"

    options: dict[str, Any] = {"using": "locmem", "app": app, "once": True, "ttl": 30}
    decorate: Any = locked_task("{key}", **options)
    task = decorate(body)
    held = lock(name, using="locmem", ttl=left, wait=0)
    first = elsewhere(lambda: run(held._obtain(UNSET, "owner")))
    headers = Ticket(name, "owner", "1").added_to({})
    try:
        if begun:
            with pytest.raises(Retry):
                deliver(task, name, headers, again=True)
        else:
            assert deliver(task, name, headers, again=True) == "done"
    finally:
        app.close()
    assert first.fencing_token


def test_what_is_held_up_by_itself_is_never_dropped(name: str) -> None:
    """A message that was delivered again comes again until its first run has ended."""
    app = Celery("delivered", broker="memory://", set_as_current=False)
    sent: list[dict[str, Any]] = [Ticket(name, "owner", "1").added_to({})]

    def published(sender: Any, headers: dict[str, Any], **more: Any) -> None:
        sent.append(headers)

    def body(key: str) -> str:
        return "done"

    options: dict[str, Any] = {"using": "locmem", "app": app, "once": True}
    decorate: Any = locked_task("{key}", on_contention="skip", default="skipped", **options)
    task = decorate(body)

    before_task_publish.connect(published)
    try:
        with hold_elsewhere(name, using="locmem"):
            for again in (True, False, False):
                with pytest.raises(Retry):
                    deliver(task, name, sent[-1], again=again)
        assert deliver(task, name, sent[-1], again=False) == "done"
    finally:
        before_task_publish.disconnect(published)
        app.close()
    assert [Ticket.of(each, "1") for each in sent[1:]] == [
        Ticket(name, "", "1", waits) for waits in (1, 2, 3)
    ]


def test_a_task_that_calls_itself_is_told(app: Celery, name: str) -> None:
    @locked_task("{key}", using="locmem", app=app, once=True)
    def task(key: str) -> None:
        task(key)

    with pytest.raises(AlreadyHeldError):
        task.delay(name)
    assert not lock(name, using="locmem").locked()


def test_a_limit(app: Celery, name: str) -> None:
    @locked_task("{key}", using="locmem", app=app, limit=2, on_contention="skip", default="busy")
    def task(key: str) -> int | str | None:
        lease = current_lease()
        assert lease is not None
        return lease.slot

    limited = lock(name, using="locmem", limit=2)
    with limited:
        assert elsewhere(lambda: task.delay(name).get()) == 1
        other = elsewhere(limited.__enter__)
        assert elsewhere(lambda: task.delay(name).get()) == "busy"
        other.release()


def test_min_hold(app: Celery, name: str) -> None:
    @locked_task("{key}", using="locmem", app=app, min_hold=30, once=True)
    def task(key: str) -> None: ...

    task.delay(name)
    info = locks["locmem"].inspect(name)
    assert info is not None
    assert info.acquired_at is not None
    assert info.expires_at is not None
    assert 28 < (info.expires_at - info.acquired_at).total_seconds() <= 31
    locks["locmem"].force_release(name)


def test_arguments_are_checked_when_it_is_sent(app: Celery) -> None:
    @locked_task("{key}", using="locmem", app=app)
    def task(key: str) -> None: ...

    with pytest.raises(TypeError, match="key"):
        task.delay()  # type: ignore[call-arg]


def test_it_keeps_what_celery_asks_of_a_function(app: Celery) -> None:
    @locked_task("x", app=app, name="mine", max_retries=7)
    def task(key: str) -> None:
        """Say what it does."""

    assert task.name == "mine"
    assert task.max_retries == 7
    assert task.__doc__ == "Say what it does."


@pytest.mark.parametrize("once", [False, True])
def test_the_base_is_the_apps_or_the_given_one(app: Celery, once: bool) -> None:
    class Mine(Task[Any, Any]):
        abstract = True

    task = locked_task("x", app=app, base=Mine, once=once, name="a")(nothing)
    other = locked_task("x", app=app, once=once, name="b")(nothing)
    assert isinstance(task, Mine)
    assert isinstance(other, app.Task)


@pytest.mark.parametrize("once", [False, True, "queued"])
def test_a_shared_task_is_of_the_class_of_each_app(once: Any) -> None:
    class First(Task[Any, Any]):
        abstract = True

    class Second(Task[Any, Any]):
        abstract = True

    name = f"shared {once}"
    with _state_kept():
        locked_task("x", once=once, name=name)(nothing)
        for kind in (First, Second):
            app = Celery("each", task_cls=kind, set_as_current=False)
            app.finalize()
            assert isinstance(app.tasks[name], kind)
            assert isinstance(app.tasks[name], OnceTask) is bool(once)
            app.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_contention": "queue"}, "on_contention is one of"),
        ({"once": True, "on_duplicate": "drop"}, "on_duplicate"),
        ({"once": True, "contention_retries": True}, "contention_retries"),
        ({"min_hold": 0}, "min_hold"),
        ({"once": True, "queue_ttl": -1}, "queue_ttl"),
        ({"ttl": 0}, "ttl"),
        ({"on_contention": "retry", "countdown": 0}, "countdown"),
        ({"once": "twice"}, "once is True, False or 'queued'"),
        # Not heeded: misspelt, meant for something else, or alone.
        ({"on_contenton": "skip"}, "did you mean 'on_contention'"),
        ({"min_holds": 5}, "did you mean 'min_hold'"),
        ({"timeout": 5}, "say ttl="),
        ({"reentrant": True}, "takes its lock once"),
        ({"label": "a"}, "by its template"),
        ({"cancel_on_lost": True}, "current_lease"),
        ({"default": 5}, "on_contention='skip'"),
        ({"contention_retries": 5}, "on_contention='retry'"),
        ({"countdown": 5}, "on_contention='retry'"),
        ({"queue_ttl": 5}, "once=True"),
        ({"on_duplicate": "raise"}, "once=True"),
        ({"unique_on": ["a"]}, "no name is given"),
        ({"once": "queued", "on_contention": "retry"}, "without its lock"),
        ({"once": "queued", "min_hold": 5}, "without its lock"),
        ({"once": True, "limit": 2}, "leave out limit"),
        ({"once": "queued", "shared": True}, "leave out shared"),
        ({"limit": 0}, "limit must be"),
    ],
)
def test_options_out_of_range(app: Celery, options: dict[str, Any], said: str) -> None:
    make: Any = locked_task
    with pytest.raises(InvalidLockError, match=said):
        make("x", app=app, **options)(nothing)


def test_what_celery_takes_is_taken(app: Celery) -> None:
    """Celery makes attributes of options, also of those that only the program knows."""
    options: dict[str, Any] = {
        "acks_late": True,
        "rate_limit": "9/s",
        "owner_team": "shop",
        "name": "b",
    }
    decorate: Any = locked_task("x", app=app, **options)
    task = decorate(nothing)
    assert (task.acks_late, task.rate_limit, task.owner_team) == (True, "9/s", "shop")


def test_without_parentheses_it_is_refused_at_once() -> None:
    with pytest.raises(InvalidLockError, match=r"write @locked_task\('a name'\) above bare\(\)"):

        @locked_task  # type: ignore[arg-type]
        def bare() -> None: ...


def test_what_is_no_task(app: Celery) -> None:
    async def later() -> None: ...

    @app.task
    def made() -> None: ...

    with pytest.raises(InvalidLockError, match="takes the place of"):
        locked_task("x", app=app)(made)
    with pytest.raises(InvalidLockError, match="no coroutines"):
        locked_task("x", app=app)(later)
    with pytest.raises(InvalidLockError, match="generator"):
        locked_task("x", app=app)(lambda: (yield))
    with pytest.raises(InvalidLockError, match="first argument"):
        locked_task("x", app=app, bind=True)(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "raw",
    [None, 7, {}, {"task_id": "b"}, {"task_id": "a", "name": "", "owner": ""}, {"task_id": "a"}],
)
def test_a_header_that_says_nothing(raw: object) -> None:
    assert Ticket.of({HEADER: raw}, "a") is None
    assert Ticket.of(None, "a") is None


def test_a_header_says_what_it_was_made_of() -> None:
    ticket = Ticket("name", "owner", "a", 3)
    headers = ticket.added_to({"X": 1})
    assert headers["X"] == 1
    assert Ticket.of(headers, "a") == ticket
    assert Ticket.of(headers, "b") is None


def test_without_celery_the_extra_is_named() -> None:
    program = "import sys; sys.modules['celery'] = None\nimport django_distlock.contrib.celery"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert 'pip install "django-distlock[celery]"' in done.stderr


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("bind", [False, True])
def test_the_holder_is_the_tasks_function(app: Celery, name: str, once: bool, bind: bool) -> None:
    def task(*args: Any) -> str:
        info = locks["locmem"].inspect(name)
        return "" if info is None else info.holder.site

    decorator: Any = locked_task
    made = decorator(name, using="locmem", app=app, once=once, bind=bind)(task)
    place = f"{__file__}:{task.__code__.co_firstlineno} {task.__qualname__}"
    assert made.delay().get() == made() == place
