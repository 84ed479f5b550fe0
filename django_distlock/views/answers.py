"""What the client is told when a view did not run under its lock: page or JSON, by its wishes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Literal

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.translation import gettext as _

__all__ = ["STATUSES", "TEMPLATE", "answer", "retry_after"]

STATUSES = (409, 423, 429, 503)
"""What a client can be told of a lock that somebody else holds.

Conflict, Locked, Too Many Requests, Service Unavailable.
"""

TEMPLATE = "distlock/locked.html"

Reason = Literal["held", "lost", "unavailable"]


@dataclass(frozen=True, slots=True)
class Told:
    """The JSON, and the context of the template. Of the lock and its holder it says nothing."""

    reason: Reason
    title: str
    detail: str
    retry_after: int | None


def retry_after(remaining: float | None) -> int | None:
    """Return the seconds for the header: whole ones, rounded up, at least one."""
    return None if remaining is None else max(1, math.ceil(remaining))


def answer(
    request: HttpRequest, reason: Reason, status: int = 503, remaining: float | None = None
) -> HttpResponse:
    """Return the response for a lock that is held, was lost, or whose store does not answer."""
    told = Told(reason, *_words(reason), retry_after(remaining))
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
    return HttpResponse(template.render({**asdict(told), "status": status}, request), status=status)


def _words(reason: Reason) -> tuple[str, str]:
    if reason == "held":
        return _("One moment, please"), _(
            "Another request is doing this right now. Nothing was done."
        )
    if reason == "lost":
        return (
            _("This took too long"),
            _("It may have been done in part. Please look before you try again."),
        )
    return _("Not possible at the moment"), _("Nothing was done. Please try again later.")
