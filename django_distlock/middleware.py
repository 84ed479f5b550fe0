"""A middleware that answers 409 Conflict where a view has not handled a lock's errors."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from .exceptions import LockNotAcquiredError, StaleVersionError
from .views.answers import answer, seconds_of

__all__ = ["LockConflictMiddleware"]


class LockConflictMiddleware(MiddlewareMixin):
    """Answers 409 for a LockNotAcquiredError and a StaleVersionError that a view lets through.

    As `locked_view` answers: a page or JSON, by the client's Accept; of a lock with Retry-After.
    The transaction of ATOMIC_REQUESTS is rolled back before. All other errors are left alone.
    """

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the response for an error of a lock or a version, and None for any other."""
        if isinstance(error, LockNotAcquiredError):
            return answer(request, "held", 409, seconds_of(error))
        if isinstance(error, StaleVersionError):
            return answer(request, "stale", 409)
        return None
