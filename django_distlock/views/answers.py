"""What the client is told when a view did not run under its lock: page or JSON, by its wishes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from ..exceptions import LockNotAcquiredError
from . import rest

__all__ = ["RETRY_AFTER", "STATUSES", "TEMPLATE", "answer", "seconds_of", "words_of"]

STATUSES = (409, 423, 429, 503)
"""What a client can be told of a lock that another process holds.

Conflict, Locked, Too Many Requests, Service Unavailable.
"""

RETRY_AFTER = 2.0
"""Seconds after which a client may try again, if nothing else is said.

What is left of the holder's lease says little of that: a living holder renews it, and frees it as
soon as the work is done.
"""

TEMPLATE = "distlock/locked.html"

Reason = Literal["held", "lost", "stale", "unavailable"]


@dataclass(frozen=True, slots=True)
class Told:
    """The JSON, and the context of the template. Of the lock and its holder it says nothing."""

    reason: Reason
    title: str
    detail: str
    retry_after: int | None


def seconds_of(error: LockNotAcquiredError, most: float = RETRY_AFTER) -> int:
    """Return the seconds for the header Retry-After: whole ones, rounded up, from 1 to ``most``."""
    left = error.retry_after
    return max(1, math.ceil(most if left is None else min(left, most)))


def answer(
    request: HttpRequest, reason: Reason, status: int = 503, retry_after: int | None = None
) -> HttpResponse:
    """Return the response for a held or lost lock, a stale version, or a store without an answer.

    Or raise it, to Django REST framework, whose renderers and exception handler are the project's.
    """
    told = Told(reason, *words_of(reason), retry_after)
    if rest.is_request(request):
        raise rest.refusal(told.detail, reason, status, retry_after)
    kinds = ["text/html", "application/json"]  # who takes both alike is shown the page
    response: HttpResponse
    if request.get_preferred_type(kinds) == "application/json":
        response = JsonResponse(asdict(told), status=status)
    else:
        response = _page(request, told, status)
    patch_vary_headers(response, ["Accept"])
    add_never_cache_headers(response)  # whatever decorators above say of the view's own responses
    if told.retry_after is not None:
        response["Retry-After"] = str(told.retry_after)
    return response


def _page(request: HttpRequest, told: Told, status: int) -> HttpResponse:
    try:
        template = get_template(TEMPLATE)
    except TemplateDoesNotExist:  # a project that has no pages at all
        text = f"{told.title}\n{told.detail}\n"
        return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
    context = {**asdict(told), "status": status, "back": _back(request)}
    return HttpResponse(template.render(context, request), status=status)


def _back(request: HttpRequest) -> str:
    """Return the page of this site that the client has come from, or the page that it asked for."""
    page = request.headers.get("Referer", "")
    secure = request.is_secure()
    if page and url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=secure):
        return page
    return request.get_full_path() if request.method == "GET" else "/"


def words_of(reason: Reason) -> tuple[str, str]:
    """Return the title and the detail, translated."""
    if reason == "held":
        return _("Already in progress"), _(
            "Another request is doing this right now. Yours was not carried out."
        )
    if reason == "stale":
        return _("Changed meanwhile"), _(
            "This was changed after you loaded it. Nothing was saved. Load it again, and repeat "
            "your changes."
        )
    if reason == "lost":
        return (
            _("This took too long"),
            _("It may have been done in part. Please look before you try again."),
        )
    return _("Not possible at the moment"), _("Nothing was done. Please try again later.")
