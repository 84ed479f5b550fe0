"""The Locks page: who holds what, in every alias, and releasing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..core import checking
from ..core.text import shown
from ..models import HeldLock
from .asking import AGES, COLUMNS, ORDERS, STATES, STUCK, Asked, Page
from .board import Board, gather, grouped
from .releasing import Chosen, choose, release

__all__ = ["HeldLockAdmin"]

if TYPE_CHECKING:
    Base = admin.ModelAdmin[HeldLock]
else:  # the class takes no type parameter while the program runs
    Base = admin.ModelAdmin

INTERVALS = (2, 5, 15, 60)


@admin.register(HeldLock)
class HeldLockAdmin(Base):
    """Shows the locks that are held in every alias, and releases them.

    - ``limit``: seconds that the stores have for their answers; one that takes longer is shown as
      down.
    - ``per_page``: locks on a page.
    - ``interval``: seconds between two refreshes, unless the user chooses another.
    """

    limit = 2.0
    per_page = 50
    interval = 5

    # -- who may what ------------------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        """No user takes a lock here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """No user changes one."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Releasing has a permission of its own."""
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may break locks: ``django_distlock.release_heldlock``."""
        return self.has_view_permission(request) and request.user.has_perm(
            "django_distlock.release_heldlock"
        )

    # -- addresses ---------------------------------------------------------------------------------

    def get_urls(self) -> list[URLResolver | URLPattern]:  # type: ignore[override]
        """Return the addresses: there are no rows to add, change or delete."""
        views = {"": "changelist", "refresh/": "refresh", "hold/": "hold", "release/": "release"}
        return [
            path(where, self._wrapped(getattr(self, f"{name}_view")), name=_url_name(name))
            for where, name in views.items()
        ]

    def _wrapped(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        wrapped = self.admin_site.admin_view(view)
        # In a transaction of ATOMIC_REQUESTS the stores would be asked one after the other, and a
        # release would be written down only if all that follows goes well.
        for database in connections:
            wrapped = transaction.non_atomic_requests(using=database)(wrapped)
        return wrapped

    def _address(self, name: str, query: str = "") -> str:
        where = reverse(f"admin:{_url_name(name)}", current_app=self.admin_site.name)
        return f"{where}?{query}" if query else where

    # -- the list ----------------------------------------------------------------------------------

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page."""
        context = self._list(request)
        asked: Asked = context["asked"]
        board: Board = context["board"]
        techniques = sorted({store.technique for store in board.stores} - {""})
        context |= {
            **self.admin_site.each_context(request),
            "title": _("Locks"),
            "opts": self.opts,
            "has_view_permission": True,
            "aliases": [store.alias for store in board.stores],
            "techniques": techniques,
            "ages": AGES.items(),
            "states": STATES.items(),
            "orders": [
                (STUCK, ORDERS[STUCK][0]),
                *(
                    choice
                    for name, (label, _key) in ORDERS.items()
                    if name != STUCK
                    for choice in ((name, f"{label} ↑"), (f"-{name}", f"{label} ↓"))
                ),
            ],
            "intervals": INTERVALS,
            "interval": self.interval,
            "refresh_url": self._address("refresh", asked.query()),
            "history_url": self._history(request),
            **(extra_context or {}),
        }
        return self._page(request, "admin/distlock/locks.html", context)

    def refresh_view(self, request: HttpRequest) -> HttpResponse:
        """Return the parts of the page that change, as JSON."""
        context = self._list(request)
        board: Board = context["board"]
        parts = {
            name: render_to_string(f"admin/distlock/parts/{name}.html", context, request)
            for name in ("verdict", "stores", "rows", "pages")
        }
        figures = {
            "found": context["found"],
            "held": board.held,
            "waiting": board.waiting,
            "down": [store.alias for store in board.stores if store.error],
            "took": round(board.took, 3),
        }
        return JsonResponse(parts | figures, json_dumps_params={"ensure_ascii": False})

    def _list(self, request: HttpRequest) -> dict[str, Any]:
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = Asked.read(request.GET)
        board = gather(self.limit, retry=request.GET.get("retry", ""), expired=asked.expired)
        page = asked.answer(board, self.per_page)
        return {
            "asked": asked,
            "board": board,
            "page": page,
            "found": _found(asked, page, board),
            "rows": board.rows(page.entries),
            "columns": [
                _column(asked, name)
                for name in COLUMNS
                if name != "waiters" or board.waiting is not None
            ],
            "verdict": board.verdict(),
            # What has expired is free: whoever wants it takes it.
            "may_release": self.has_release_permission(request) and not asked.expired,
            "list_url": self._address("changelist"),
            "hold_url": self._address("hold"),
            "release_url": self._address("release"),
            "back": asked.query(),
            "numbers": _numbers(asked, page),
            "docs_url": checking.page("tutorial/first-lock"),
        }

    def _history(self, request: HttpRequest) -> str:
        if not request.user.has_perm("django_distlock.view_forcedrelease"):
            return ""
        name = "admin:django_distlock_forcedrelease_changelist"
        return reverse(name, current_app=self.admin_site.name)

    # -- one lock, or some -------------------------------------------------------------------------

    def hold_view(self, request: HttpRequest) -> HttpResponse:
        """Show all that is known of a lock."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return self._chosen(
            request, choose(request.GET.getlist("hold"), self.limit, expired=True), ask=False
        )

    def release_view(self, request: HttpRequest) -> HttpResponse:
        """Ask whether the locks that were chosen are to be released, and release them."""
        if not self.has_release_permission(request):
            raise PermissionDenied
        # The list asks by POST, too: of many locks the address would be too long.
        asking = request.GET if request.method != "POST" else request.POST
        if request.method != "POST" or "ask" in asking:
            asked = choose(asking.getlist("hold"), self.limit)
            return self._chosen(request, asked, ask=True)
        chosen = choose(request.POST.getlist("hold"), self.limit)
        for level, text in release(request, chosen, self.limit):
            messages.add_message(request, level, text)
        back = Asked.read(dict(parse_qsl(request.POST.get("back", "")))).query()
        return HttpResponseRedirect(self._address("changelist", back))

    def _chosen(self, request: HttpRequest, chosen: Chosen, *, ask: bool) -> HttpResponse:
        number = len(chosen.entries)
        title = _("Lock")
        if number == 1:
            name = shown(chosen.entries[0].info.name, 100)
            title = _("Release %(name)s?") % {"name": name} if ask else name
        elif ask and number:
            title = ngettext("Release this lock?", "Release these %(number)s locks?", number) % {
                "number": number
            }
        back = self._back(request)
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "chosen": chosen,
            "ask": ask,
            "may_release": self.has_release_permission(request),
            "hold_url": self._address("hold"),
            "release_url": self._address("release"),
            "back": back,
            "back_url": self._address("changelist", back),
            "list_url": self._address("changelist"),
        }
        return self._page(request, "admin/distlock/hold.html", context)

    def _back(self, request: HttpRequest) -> str:
        """Return the question of the list from which the user came."""
        back = request.GET.get("back", request.POST.get("back", ""))
        came_from = urlsplit(request.headers.get("referer", ""))
        if not back and came_from.path == self._address("changelist"):
            back = came_from.query
        return Asked.read(dict(parse_qsl(back))).query()

    def _page(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, context)


def _url_name(name: str) -> str:
    return f"django_distlock_heldlock_{name}"


def _found(asked: Asked, page: Page, board: Board) -> str:
    held, found = grouped(board.held), grouped(page.found)
    if not asked.filtered and board.down:
        return ngettext(
            "%(held)s lock in %(read)s of %(stores)s stores; %(down)s could not be read",
            "%(held)s locks in %(read)s of %(stores)s stores; %(down)s could not be read",
            board.held,
        ) % {
            "held": held,
            "read": len(board.stores) - board.down,
            "stores": len(board.stores),
            "down": board.down,
        }
    if not asked.filtered:
        return ngettext("%(held)s lock is held", "%(held)s locks are held", board.held) % {
            "held": held
        }
    if asked.expired:
        return ngettext(
            "%(found)s lease has expired", "%(found)s leases have expired", page.found
        ) % {"found": found}
    return _("%(found)s of %(held)s locks") % {"found": found, "held": held}


def _column(asked: Asked, name: str) -> dict[str, Any]:
    """Return what the head of a column says and where it leads to."""
    now = {name: "ascending", f"-{name}": "descending"}.get(asked.o, "")
    # What is asked first: who holds the longest, what ends the soonest, who waits the most.
    first = f"-{name}" if name in ("held", "waiters") else name
    other = f"-{name}" if not first.startswith("-") else name
    return {
        "name": name,
        "label": ORDERS[name][0],
        "sorted": now,
        "query": asked.query(o=other if asked.o == first else first, p=1),
    }


def _numbers(asked: Asked, page: Page) -> Sequence[tuple[int | None, str]]:
    """Return the pages to link to: the first, the last, those around this one; None is a gap."""
    near = range(page.number - 2, page.number + 3)
    wanted = sorted({1, page.count, *(each for each in near if 1 <= each <= page.count)})
    found: list[tuple[int | None, str]] = []
    for before, each in pairwise([0, *wanted]):
        if each > before + 1:
            found.append((None, ""))
        found.append((each, asked.query(p=each)))
    return found
