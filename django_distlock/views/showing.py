"""What a locked view shows of itself beside its lock: its name, user, and line of code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest
from django.utils.functional import LazyObject, empty
from django.views import View

from ..core.holder import Caller, place_of
from .atomic import owner_of

__all__ = ["caller_of"]

USER = 150  # characters of a user's name, as many as Django's own may have


def caller_of(request: HttpRequest, view: Callable[..., Any]) -> Caller:
    """Return for whom ``view`` takes its lock, without asking a database for it."""
    owner = owner_of(view)
    if isinstance(owner, View):
        kind = type(owner)
        name = f"{kind.__module__}.{kind.__qualname__}"
        method = (request.method or "").lower()
        if method in owner.http_method_names:
            view = getattr(owner, method, view)
    else:
        name = f"{view.__module__}.{getattr(view, '__qualname__', type(view).__qualname__)}"
    match = getattr(request, "resolver_match", None)
    return Caller(place_of(view), getattr(match, "view_name", None) or name, _user(request))


def _user(request: HttpRequest) -> str:
    """Return the user's name if it is loaded, or the id that a loaded session has, or nothing."""
    user = getattr(request, "_acached_user", None) or getattr(request, "user", None)
    if isinstance(user, LazyObject) and user._wrapped is empty:
        user = getattr(request, "_cached_user", None)
    if user is not None:
        get_username = getattr(user, "get_username", None)
        return str(get_username())[:USER] if callable(get_username) else ""
    session = getattr(getattr(request, "session", None), "_session_cache", None)
    known = session.get(SESSION_KEY) if isinstance(session, dict) else None
    return "" if known is None else f"id {known}"[:USER]
