"""What the client is told: held, lost, or no answer from the store."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from django.http import FileResponse, HttpRequest, HttpResponse
from django.test import AsyncClient
from django.utils import translation
from django.views.decorators.cache import cache_control

from django_distlock import LockNotAcquiredError, lock
from django_distlock.testing import expire_lease, hold_elsewhere
from django_distlock.views import locked_view
from tests.backends.tools import database_alias, lock_alias, unreachable
from tests.unit.tools import Down, UnitBackend
from tests.views.site import TEMPLATES, page, plain, taken


async def aplain(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer OK."""
    return HttpResponse("done")


BOTH = pytest.mark.parametrize("view", [plain, aplain])


# -- held ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("status", [None, 409, 423, 429, 503])
def test_held(store: str, name: str, view: Any, status: int | None) -> None:
    options: dict[str, Any] = {} if status is None else {"on_contention": status}
    locked = locked_view(lambda *_, **__: name, using=store, wait=0, **options)(view)
    with page(locked) as client:
        with taken(name, store, ttl=17.5):
            response = client.get("/1/")
        assert client.get("/1/").content == b"done"
    assert response.status_code == (status or 409)
    assert response["Retry-After"] == "2"  # less than the lease has left: it may be free before
    assert response["Content-Type"] == "text/html; charset=utf-8"
    assert response["Vary"] == "Accept"
    assert "no-store" in response["Cache-Control"]
    assert "<title>Already in progress</title>" in response.text
    assert f"try again in {response['Retry-After']} seconds" in response.text
    # Neither the lock nor its holder is the client's business.
    assert name[-8:] not in response.text
    assert "pid" not in response.text


@pytest.mark.parametrize(
    ("given", "ttl", "header"),
    [(30, 17.5, ("17", "18")), (7, 60, ("7",)), (0, 60, ("1",)), (None, 60, (None,))],
)
def test_when_to_try_again(
    backend: UnitBackend, given: float | None, ttl: float, header: tuple[str | None, ...]
) -> None:
    locked = locked_view("a", using=backend.alias, retry_after=given)(plain)
    with page(locked) as client, taken("a", backend.alias, ttl=ttl):
        response = client.get("/1/")
    assert response.get("Retry-After") in header  # a slow machine may lose a second


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        (None, "/1/?a=b"),
        ("http://testserver/orders/?page=2", "/orders/?page=2"),
        ("https://elsewhere.example/", "/1/?a=b"),
        ("javascript:alert(1)", "/1/?a=b"),
    ],
)
def test_the_page_has_a_way_back(backend: UnitBackend, referer: str | None, back: str) -> None:
    headers = {} if referer is None else {"Referer": referer}
    with page(locked_view("a", using=backend.alias)(plain)) as client, taken("a", backend.alias):
        assert f'{back}">Go back</a>' in client.get("/1/?a=b", headers=headers).text
        if not referer or "testserver" not in referer:
            assert 'href="/">Go back</a>' in client.post("/1/", headers=headers).text


def test_it_does_not_wait_unless_it_is_told_to(backend: UnitBackend) -> None:
    with page(locked_view("a", using=backend.alias)(plain)) as client, taken("a", backend.alias):
        before = backend.count("try_acquire")
        assert client.get("/1/").status_code == 409
        assert backend.count("try_acquire") == before + 1


def test_held_in_an_asynchronous_client(backend: UnitBackend) -> None:
    async def ask() -> int:
        async with hold_elsewhere("a", using=backend.alias):
            return (await AsyncClient().get("/1/")).status_code

    with page(locked_view("a", using=backend.alias, wait=0)(aplain)):
        assert asyncio.run(ask()) == 409


def test_it_waits_as_long_as_it_is_told_to(backend: UnitBackend) -> None:
    locked = locked_view("a", using=backend.alias, wait=0.1)(plain)
    with page(locked) as client, taken("a", backend.alias):
        assert client.get("/1/").status_code == 409
    assert backend.count("try_acquire") > 2


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/html; charset=utf-8"),
        ("*/*", "text/html; charset=utf-8"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8"),
        ("application/json", "application/json"),
        ("application/json, text/plain, */*", "application/json"),
        ("application/*", "application/json"),
        ("text/html;q=0.5, application/json", "application/json"),
        ("application/json;q=0.5, text/html", "text/html; charset=utf-8"),
        ("image/png", "text/html; charset=utf-8"),
    ],
)
def test_json_where_the_client_accepts_it(
    backend: UnitBackend, accept: str | None, kind: str
) -> None:
    headers = {} if accept is None else {"Accept": accept}
    locked = locked_view("a", using=backend.alias, wait=0)(plain)
    with page(locked) as client, taken("a", backend.alias, ttl=9.5):
        response = client.get("/1/", headers=headers)
    assert response["Content-Type"] == kind
    if kind == "application/json":
        assert json.loads(response.content) == {
            "reason": "held",
            "title": "Already in progress",
            "detail": "Another request is doing this right now. Yours was not carried out.",
            "retry_after": 2,
        }


def test_a_project_may_have_a_page_of_its_own(backend: UnitBackend, tmp_path: Path) -> None:
    (tmp_path / "distlock").mkdir()
    text = "{{ status }} {{ reason }} {{ retry_after }} {{ request.path }} {{ title }}"
    (tmp_path / "distlock" / "locked.html").write_text(text)
    templates = [TEMPLATES[0] | {"DIRS": [tmp_path]}]
    locked = locked_view("a", using=backend.alias, wait=0, on_contention=423)(plain)
    with page(locked, TEMPLATES=templates) as client, taken("a", backend.alias, ttl=9.5):
        assert client.get("/1/").content == b"423 held 2 /1/ Already in progress"


def nonce(request: HttpRequest) -> dict[str, str]:
    """As the context processor of Django 6.0."""
    return {"csp_nonce": "once"}


def test_the_style_of_the_page_has_the_nonce_of_a_strict_policy(backend: UnitBackend) -> None:
    options = {"context_processors": [f"{__name__}.nonce"]}
    locked = locked_view("a", using=backend.alias, wait=0)(plain)
    with (
        page(locked, TEMPLATES=[{**TEMPLATES[0], "OPTIONS": options}]) as client,
        taken("a", backend.alias),
    ):
        assert '<style nonce="once">' in client.get("/1/").text
    with page(locked) as client, taken("a", backend.alias):
        assert '<style nonce="">' in client.get("/1/").text


def test_a_project_may_have_no_pages_at_all(backend: UnitBackend) -> None:
    locked = locked_view("a", using=backend.alias, wait=0)(plain)
    with page(locked, TEMPLATES=[]) as client, taken("a", backend.alias):
        response = client.get("/1/")
    assert (response.status_code, response["Content-Type"]) == (409, "text/plain; charset=utf-8")
    assert response.text.startswith("Already in progress\nAnother request")


def test_in_the_clients_language(backend: UnitBackend) -> None:
    locked = locked_view("a", using=backend.alias, wait=0)(plain)
    with (
        page(locked) as client,
        taken("a", backend.alias, ttl=9.5),
        translation.override("zh-hans"),
    ):
        response = client.get("/1/")
        asked = client.get("/1/", headers={"Accept": "application/json"})
    assert '<html lang="zh-hans">' in response.text
    assert "<title>正在处理中</title>" in response.text
    assert "2 秒后可以重试。" in response.text
    assert json.loads(asked.content)["title"] == "正在处理中"


def test_decorators_above_do_not_have_it_cached(backend: UnitBackend) -> None:
    locked = cache_control(max_age=3600)(locked_view("a", using=backend.alias, wait=0)(plain))
    with page(locked) as client, taken("a", backend.alias):
        assert "no-store" in client.get("/1/")["Cache-Control"]


# -- another view in its place -------------------------------------------------------------------


def busy(error: LockNotAcquiredError, request: HttpRequest, pk: int) -> HttpResponse:
    """Answer in place of the view."""
    assert error.holder is not None
    return HttpResponse(f"busy with {pk} by {error.holder.thread}", status=409)


async def abusy(error: LockNotAcquiredError, request: HttpRequest, pk: int) -> HttpResponse:
    """Answer in place of the view."""
    return busy(error, request, pk)


@BOTH
@pytest.mark.parametrize("instead", [busy, abusy])
def test_another_view_is_called_instead(backend: UnitBackend, view: Any, instead: Any) -> None:
    locked = locked_view("a", using=backend.alias, wait=0, on_contention=instead)(view)
    with page(locked) as client, taken("a", backend.alias, ttl=9.5):
        info = lock("a", using=backend.alias).info()
        response = client.get("/7/")
    assert info is not None
    assert (response.status_code, response.text) == (409, f"busy with 7 by {info.holder.thread}")
    assert response["Retry-After"] == "2"


def test_what_another_view_says_of_the_time_is_kept(backend: UnitBackend) -> None:
    def later(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(status=429, headers={"Retry-After": "99"})

    def found(error: Exception, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse("what was made yesterday")

    for instead, header in ((later, "99"), (found, None)):
        locked = locked_view("a", using=backend.alias, wait=0, on_contention=instead)(plain)
        with page(locked) as client, taken("a", backend.alias):
            assert client.get("/7/").get("Retry-After") == header


# -- lost ----------------------------------------------------------------------------------------


def losing(request: HttpRequest, pk: int) -> HttpResponse:
    """Lose the lease while the view runs."""
    expire_lease(request.lease)  # type: ignore[attr-defined]
    return HttpResponse("done")


async def alosing(request: HttpRequest, pk: int) -> HttpResponse:
    """Lose the lease while the view runs."""
    expire_lease(request.lease)  # type: ignore[attr-defined]
    return HttpResponse("done")


LOSING = pytest.mark.parametrize("view", [losing, alosing])


@LOSING
def test_lost(backend: UnitBackend, view: Any, caplog: pytest.LogCaptureFixture) -> None:
    with page(locked_view("a", using=backend.alias)(view)) as client:
        response = client.get("/1/", headers={"Accept": "application/json"})
    assert response.status_code == 503
    assert "Retry-After" not in response
    assert json.loads(response.content)["reason"] == "lost"
    assert "The view has ended: The lease is lost: a test said so" in caplog.text


@LOSING
def test_a_view_may_not_care_about_a_loss(backend: UnitBackend, view: Any) -> None:
    with page(locked_view("a", using=backend.alias, on_lost="ignore")(view)) as client:
        assert client.get("/1/").content == b"done"


@pytest.mark.parametrize("on_lost", ["error", "ignore"])
def test_a_loss_that_the_release_finds(backend: UnitBackend, on_lost: Any) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        backend.drop("a")
        return HttpResponse("done")

    with page(locked_view("a", using=backend.alias, on_lost=on_lost)(view)) as client:
        assert client.get("/1/").status_code == (503 if on_lost == "error" else 200)


def test_what_the_response_of_a_lost_view_has_open_is_closed(
    backend: UnitBackend, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    opened = file.open("rb")

    def view(request: HttpRequest, pk: int) -> FileResponse:
        expire_lease(request.lease)  # type: ignore[attr-defined]
        return FileResponse(opened)

    with page(locked_view("a", using=backend.alias)(view)) as client:
        assert client.get("/1/").status_code == 503
    assert opened.closed


def test_the_error_of_a_lost_view_is_told(backend: UnitBackend) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        expire_lease(request.lease)  # type: ignore[attr-defined]
        raise LookupError

    locked = locked_view("a", using=backend.alias)(view)
    with page(locked) as client, pytest.raises(LookupError):
        client.get("/1/")


# -- the store -----------------------------------------------------------------------------------


@BOTH
def test_a_store_that_is_down(store: str, view: Any, caplog: pytest.LogCaptureFixture) -> None:
    with database_alias("down", unreachable(store)), lock_alias("down", LOCATION="down"):
        locked = locked_view("a", using="down", wait=0, on_contention=409)(view)
        with page(locked) as client:
            response = client.get("/1/", headers={"Accept": "application/json"})
    assert response.status_code == 503
    assert "Retry-After" not in response
    assert json.loads(response.content)["reason"] == "unavailable"
    assert "OperationalError" not in response.text
    [said] = [
        r for r in caplog.records if r.name == "django_distlock" and r.levelno >= logging.ERROR
    ]
    assert "The view was not run: Lock store error while acquiring: " in said.getMessage()
    assert said.exc_info


@BOTH
def test_a_store_that_fails_at_the_release_takes_nothing_away(
    backend: UnitBackend, view: Any, caplog: pytest.LogCaptureFixture
) -> None:
    backend.before["release"].append(Down())
    with page(locked_view("a", using=backend.alias)(view)) as client:
        assert client.get("/1/").content == b"done"
    assert "The view has ended: Lock store error while releasing" in caplog.text


def test_an_error_of_the_views_own_locks_is_the_views(backend: UnitBackend) -> None:
    """Neither its contention nor its store's failure is taken for ours."""

    def view(request: HttpRequest, pk: int) -> HttpResponse:
        with lock("inner", using=backend.alias, wait=0):
            return HttpResponse()

    locked = locked_view("a", using=backend.alias)(view)
    with page(locked) as client, taken("inner", backend.alias), pytest.raises(LockNotAcquiredError):
        client.get("/1/")
    assert not backend.holds("a")
