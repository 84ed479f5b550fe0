"""Django REST framework, where a project has it: its requests, its responses and its errors.

Nothing is imported to recognise them: a project with such a request has imported the framework.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_renderable", "is_request", "refusal"]


def is_request(request: object) -> bool:
    """Return whether a request is one that an API view is given, around Django's own."""
    return _is(request, "request", "Request")


def is_renderable(response: Any) -> bool:
    """Return whether Django would render a response later, and it can be rendered now.

    An API view's cannot as long as the view runs: the renderer is chosen at its end.
    """
    if not callable(getattr(response, "render", None)):
        return False
    return hasattr(response, "accepted_renderer") or not _is(response, "response", "Response")


def _is(value: object, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(f"rest_framework.{module}"), name, None)
    return kind is not None and isinstance(value, kind)


def refusal(detail: str, code: str, status: int, retry_after: int | None) -> Exception:
    """Return the APIException that tells a client why a view did not run."""
    from rest_framework.exceptions import APIException

    error = APIException(detail, code)
    error.status_code = status
    error.wait = retry_after  # as of Throttled: the framework makes the header of it
    return error  # type: ignore[no-any-return]
