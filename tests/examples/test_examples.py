"""Each example does what it is there to show, by several processes, on SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.claims import soon
from tests.docs.pages import ROOT

LIMIT = 60.0
DAYS = 40


class Project:
    """The examples on a database of their own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "examples.sqlite3"
        database = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(self.path),
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
        }
        self.environment = os.environ | {
            "EXAMPLES_DATABASE": json.dumps(database),
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [sys.executable, "manage.py", *words],
            cwd=ROOT / "examples",
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str) -> str:
        """Run a command that has to succeed, and return what it printed."""
        process = self.start(*words)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, err
        return out

    def shell(self, code: str) -> str:
        """Run code in the project."""
        return self.run("shell", "--no-imports", "-c", code)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.run("migrate", "-v0")
    return project


def test_the_models_have_their_migrations(project: Project) -> None:
    assert "No changes" in project.run("makemigrations", "--check", "--dry-run")


def test_a_leader_writes_the_reports_and_another_takes_over(project: Project) -> None:
    def written() -> list[int]:
        with closing(sqlite3.connect(project.path, timeout=30)) as connection:
            rows = connection.execute("SELECT written_by FROM reports_report ORDER BY day")
            return [pid for (pid,) in rows]

    words = ("nightly_reports", "--days", str(DAYS), "--night", "0.15")
    hosts = [project.start(*words) for _ in range(2)]
    try:
        soon(lambda: len(written()) > 2, LIMIT)
        (leader,) = set(written())
        (first,) = (host for host in hosts if host.pid == leader)
        (second,) = (host for host in hosts if host.pid != leader)
        first.kill()
        out, err = second.communicate(timeout=LIMIT)
        assert second.returncode == 0, err
        assert out.strip() == "no day is left"
        found = written()
        assert len(found) == DAYS
        assert list(dict.fromkeys(found)) == [first.pid, second.pid]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()


def test_an_event_that_comes_twice_and_at_once_is_applied_once(project: Project) -> None:
    project.shell("from webhooks.models import Subscription as S; S.objects.create(reference='s1')")
    post = """
from django.test import Client
for number in range(10):
    event = {"id": f"event {number}", "state": f"state {number}"}
    answer = Client().post("/webhooks/s1/", event, content_type="application/json")
    assert answer.status_code == 200, answer.content
"""
    machines = [project.start("shell", "--no-imports", "-c", post) for _ in range(3)]
    for machine in machines:
        _, err = machine.communicate(timeout=LIMIT)
        assert machine.returncode == 0, err
    show = "from webhooks.models import Subscription as S; import json; found = S.objects.get();"
    show += "print(json.dumps([sorted(found.events), found.fence]))"
    events, fence = json.loads(project.shell(show))
    assert events == [f"event {number}" for number in range(10)]
    assert fence > 0


def test_a_worker_that_comes_late_cannot_write(project: Project) -> None:
    said = project.shell("""
from django_distlock import FenceRejectedError, lock_for
from webhooks.models import Subscription
from webhooks.views import apply
found = Subscription.objects.create(reference="s1")
late = Subscription.objects.get()
from concurrent.futures import ThreadPoolExecutor
from unittest import mock
with ThreadPoolExecutor(1) as elsewhere:
    first = elsewhere.submit(lock_for(found, ttl=0.5, renew=False).acquire).result()
with lock_for(found, wait=10) as lease:
    apply(found, {"id": "2", "state": "paid"}, lease=lease)
with mock.patch.object(type(first), "check"):  # as if it had been stopped after its check
    try:
        apply(late, {"id": "1", "state": "open"}, lease=first)
    except FenceRejectedError:
        print("refused,", Subscription.objects.get().state)
""")
    assert said.strip() == "refused, paid"


def test_the_partner_sees_three_requests_at_once(project: Project) -> None:
    said = project.shell("""
import json, threading, time
from django.test import Client
from partners import views
inside, seen, guard = [], [], threading.Lock()
def ask(article):
    with guard:
        inside.append(article)
        seen.append(len(inside))
    time.sleep(0.1)
    with guard:
        inside.remove(article)
    return 1
views.ask = ask
answers = []
def call(number):
    answers.append(Client().get(f"/quotes/lamp{number}/"))
threads = [threading.Thread(target=call, args=(n,)) for n in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
codes = [answer.status_code for answer in answers]
places = {answer.json()["place"] for answer in answers if answer.status_code == 200}
print(json.dumps([max(seen), codes.count(200) + codes.count(503), sorted(places)]))
""")
    most, answered, places = json.loads(said)
    assert 1 < most <= 3
    assert answered == 12
    assert set(places) <= {0, 1, 2}
