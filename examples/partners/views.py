"""A partner's API, which takes three requests at once."""

from __future__ import annotations

import time

from django.http import HttpRequest, JsonResponse

from django_distlock import LockTimeoutError, lock


def quote(request: HttpRequest, article: str) -> JsonResponse:
    """Ask the partner for a price; when all places are taken for too long, say so."""
    try:
        with lock("partner api", limit=3, wait=2) as lease:
            return JsonResponse({"article": article, "price": ask(article), "place": lease.slot})
    except LockTimeoutError:
        return JsonResponse({"error": "busy, try again"}, status=503, headers={"Retry-After": "2"})


def ask(article: str) -> int:
    """Return the partner's price; in place of a request over the network."""
    time.sleep(0.05)
    return 10 * len(article)
