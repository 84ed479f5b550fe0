"""Where the servers of an alias are and how they are spoken to, by its LOCATION and OPTIONS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..backends.options import TLS_FILES, file_name, tls_context
from ..conf import OptionSpec
from ..exceptions import InvalidLockBackendError
from .messages import Endpoint, parse_endpoint

__all__ = ["TLS_SPEC", "endpoints_of", "tls_of"]

TLS_SPEC: Final[OptionSpec] = dict.fromkeys(TLS_FILES, file_name)


def endpoints_of(alias: str, location: object, port: int, what: str, hint: str) -> list[Endpoint]:
    """Return the servers that a URL or a list of URLs names; ``port`` is the usual one of ``what``.

    Raises InvalidLockBackendError; the ``hint`` says where a user or a token is given instead.
    """
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    urls = [location] if isinstance(location, str) else location
    if not isinstance(urls, list | tuple) or not urls:
        raise InvalidLockBackendError(
            f"{where} is the URL of {what}, as 'http://127.0.0.1:{port}', or a list of several, "
            f"not {location!r}."
        )
    found: list[Endpoint] = []
    for url in urls:
        try:
            endpoint = parse_endpoint(url, port)
        except ValueError as error:
            raise InvalidLockBackendError(f"{where}: {error}. {hint}.") from error
        if endpoint in found:
            raise InvalidLockBackendError(f"{where} names {endpoint} twice.")
        found.append(endpoint)
    return found


def tls_of(
    alias: str, opts: Mapping[str, Any], endpoints: Sequence[Endpoint]
) -> ssl.SSLContext | None:
    """Return how the servers are spoken to by TLS; None when they are not.

    Raises InvalidLockBackendError.
    """
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    if any(each.tls for each in endpoints):
        try:
            return tls_context(opts)
        except ValueError as error:
            raise InvalidLockBackendError(f"{where}: {error}.") from error
    for key in TLS_FILES:
        if key in opts:
            raise InvalidLockBackendError(
                f"{where}: {key} needs addresses in LOCATION that begin with https."
            )
    return None
