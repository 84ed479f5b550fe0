"""A view, a command, and who looks at locks: each on every store that is chosen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_distlock import locks
from django_distlock.commands import HELD
from django_distlock.testing import hold_elsewhere
from django_distlock.views import locked_view
from tests.clusters import CLUSTERS
from tests.commands.tools import Ran

ROOT = Path(__file__).resolve().parents[2]
# Dummy excludes nobody; clusters run in one process of a run.
ALIASES = [alias for alias in settings.DISTLOCKS if alias not in (*CLUSTERS, "default", "dummy")]

Page = Callable[..., str]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """Give a function that returns the Locks page, as another process shows it."""
    environment = {key: text for key, text in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.locks_page"],
        cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True,
    ) as run:  # fmt: skip
        assert run.stdin is not None
        assert run.stdout is not None

        asked, told = run.stdin, run.stdout

        def ask(**query: str) -> str:
            print(urlencode(query), file=asked, flush=True)
            return str(json.loads(told.readline()))

        yield ask
        asked.close()
        assert run.wait(60) == 0


@pytest.mark.parametrize("alias", ALIASES)
def test_a_view_a_command_and_who_looks(alias: str, page: Page) -> None:
    name = f"every-alias-{os.urandom(4).hex()}"

    @locked_view(name, using=alias, wait=0)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("done")

    def ask() -> tuple[int, int, list[str]]:
        """Return what a view and a command answer, and the names that are listed."""
        command = Ran("runlocked", name, "--", "true", using=alias, wait="0")
        listed = Ran("locks", "list", "--using", alias, "--prefix", name, "--format", "json")
        assert listed.failed == ""
        (told,) = json.loads(listed.out)
        found = [each["name"] for each in told["locks"]]
        return view(RequestFactory().get("/")).status_code, command.code, found

    assert ask() == (200, 0, [])
    with hold_elsewhere(name, using=alias):
        assert ask() == (409, HELD, [name])
        assert name in Ran("locks", "show", name, "--using", alias).out
        if is_seen_by_others(alias):
            assert f">{name}</bdi></a>" in page(q=name, alias=alias)
    assert ask() == (200, 0, [])
    assert "No locks match." in page(q=name, alias=alias)


def is_seen_by_others(alias: str) -> bool:
    """Tell whether other processes see the locks of an alias; not those in memory."""
    return locks[alias].scope != "process" and alias != "memory"
