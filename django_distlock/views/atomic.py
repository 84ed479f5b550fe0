"""ATOMIC_REQUESTS: the lock outside of the view's transactions, which are begun inside of it.

Django begins them around the view as it finds it in the URLs, so a lock that a decorator takes
would be inside: what the view reads could be older than the lock. So the decorated view opts out
of Django's transactions and begins the same ones itself, under the lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from django.db import connections, transaction
from django.http import HttpRequest
from django.views import View

from ..exceptions import LockInTransactionError
from ..transactions import open_transactions
from . import rest

__all__ = [
    "OptedOut",
    "atomically",
    "atomically_instead",
    "below",
    "opt_out",
    "owner_of",
    "refuse_async",
    "refuse_inside",
    "stay_in",
]

View_ = Callable[..., Any]


class OptedOut(set[str]):
    """The databases that a locked view begins no transaction on; to Django it is all of them.

    Django asks a view's `_non_atomic_requests` before it begins transactions around it, and
    `non_atomic_requests` above a locked view adds to it.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def by_hand(self, alias: str) -> bool:
        """Return whether `non_atomic_requests` was used for ``alias``."""
        return super().__contains__(alias)


def opt_out(wrapper: View_, view: View_) -> OptedOut:
    """Have Django begin no transactions around ``wrapper``, and return what was opted out of.

    Of a locked view around a locked view both share it, and the inner one begins the transactions.
    """
    below = getattr(view, "_non_atomic_requests", ())
    names = below if isinstance(below, OptedOut) else OptedOut(below)
    wrapper._non_atomic_requests = names  # type: ignore[attr-defined]
    return names


def stay_in(wrapper: View_) -> set[str]:
    """Leave an async view to Django, which refuses it; return what was opted out of by hand."""
    if not hasattr(wrapper, "_non_atomic_requests"):
        wrapper._non_atomic_requests = set()  # type: ignore[attr-defined]
    names: set[str] = wrapper._non_atomic_requests  # type: ignore[attr-defined]
    return names


def _wanted(request: HttpRequest, names: set[str]) -> list[str]:
    """Return the databases on which the view is to run in a transaction."""
    wanted = [alias for alias, conf in connections.settings.items() if conf["ATOMIC_REQUESTS"]]
    if not wanted:
        return wanted
    # With method_decorator the view that Django has called is another one, with a set of its own.
    called = getattr(getattr(request, "resolver_match", None), "func", None)
    for opted in (names, getattr(called, "_non_atomic_requests", ())):
        left_out = opted.by_hand if isinstance(opted, OptedOut) else opted.__contains__
        wanted = [alias for alias in wanted if not left_out(alias)]
    return wanted


def atomically(request: HttpRequest, names: set[str], view: View_) -> View_:
    """Return ``view`` inside of the transactions that Django would have begun around it."""
    for alias in _wanted(request, names):
        view = transaction.atomic(using=alias)(view)
    return view


def atomically_instead(called: View_, view: View_) -> View_:
    """Return ``view``, which calls what is ``called`` in a locked view's place, in transactions.

    They are those that Django would have begun around it, had it found it in the URLs. What the
    locked view has opted out of says nothing: to Django that is all of them.
    """
    opted = getattr(called, "_non_atomic_requests", ())  # of a locked view all: it begins its own
    for alias, conf in connections.settings.items():
        if conf["ATOMIC_REQUESTS"] and alias not in opted:
            view = transaction.atomic(using=alias)(view)
    return view


def refuse_inside(
    request: HttpRequest, names: set[str], view: View_, name: str, using: str
) -> None:
    """Raise LockInTransactionError when the view's transaction was begun before the lock."""
    wanted = _wanted(request, names)
    if not wanted:
        return
    begun = {block.connection.alias for block in open_transactions()[0]}.intersection(wanted)
    if begun:
        databases = ", ".join(map(repr, sorted(begun)))
        raise LockInTransactionError(
            f"ATOMIC_REQUESTS has begun the view's transaction on {databases} before the lock, "
            f"so that what is read under the lock may be older than it. {_why(view, request)}",
            name=name,
            alias=using,
        )


def _why(view: View_, request: HttpRequest) -> str:
    owner = owner_of(view)
    method = getattr(view, "__name__", "")
    if rest.is_request(request):
        return (
            "In a class give the lock to LockedAPIMixin of django_distlock.contrib.rest_framework; "
            "of a function write locked_view above @api_view"
        )
    if isinstance(owner, View) and method != "dispatch":
        return (
            f"{type(owner).__name__}.{method} is decorated, which is called inside of it: use "
            "@method_decorator(locked_view(...), name='dispatch') on the class"
        )
    return (
        "Let locked_view be the outermost decorator, or those above it use functools.wraps; and "
        "call no locked view inside of another view or of atomic()"
    )


def refuse_async(request: HttpRequest, names: set[str]) -> None:
    """Raise what Django raises for an async view under ATOMIC_REQUESTS.

    Of a class-based view Django sees that it opted out, but not that nothing was done instead.
    """
    if _wanted(request, names):
        raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")


def owner_of(view: View_) -> object:
    """Return the object whose method ``view`` is, below decorators; None for a function."""
    return next((each.__self__ for each in below(view) if hasattr(each, "__self__")), None)


def below(view: View_) -> Iterator[Any]:
    """Yield ``view`` and what it wraps, down to the function or the bound method.

    `method_decorator` makes a partial of the bound method, and says that it wraps the unbound one.
    """
    each: Any = view
    while each is not None:
        yield each
        if isinstance(each, functools.partial):
            each = each.func
        elif hasattr(each, "__self__"):
            return
        else:
            each = getattr(each, "__wrapped__", None)
