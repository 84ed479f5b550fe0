"""LOCATION and OPTIONS of the etcd backend, read and judged."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from ...conf import AliasConf, OptionSpec
from ...exceptions import InvalidLockBackendError
from ...http import Endpoint, parse_endpoint

__all__ = ["SPEC", "Located", "locate"]

PORT: Final = 2379
PROTOCOL: Final = "1"
"""The number of how the keys are read and written; it is part of each of them."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a str that is not empty is expected, not {value!r}")
    return value


def _secret(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a str that is not empty is expected")
    return value


SPEC: Final[OptionSpec] = {
    "USER": _text,
    "PASSWORD": _secret,
    "ROOT": _text,
    "CA_FILE": _text,
    "CERT_FILE": _text,
    "KEY_FILE": _text,
}


@dataclass(frozen=True, slots=True)
class Located:
    """Where an etcd is, and what the keys of an alias begin with."""

    endpoints: tuple[Endpoint, ...]
    root: str
    tls: ssl.SSLContext | None = field(repr=False, compare=False)

    @property
    def shown(self) -> str:
        """The addresses, for people."""
        return ", ".join(map(str, self.endpoints))


def locate(alias: str, conf: AliasConf, opts: Mapping[str, Any]) -> Located:
    """Return what the settings of ``alias`` mean, or raise InvalidLockBackendError."""
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    urls = [conf.location] if isinstance(conf.location, str) else conf.location
    if not isinstance(urls, list | tuple) or not urls:
        raise InvalidLockBackendError(
            f"{where} is the URL of an etcd, or a list of those of its members, as "
            f"'http://127.0.0.1:{PORT}', not {conf.location!r}."
        )
    try:
        endpoints = tuple(parse_endpoint(url, PORT) for url in urls)
    except ValueError as error:
        raise InvalidLockBackendError(f"{where}: {error}.") from error
    if len(set(endpoints)) < len(endpoints):
        raise InvalidLockBackendError(f"{where} names one server twice.")
    prefix = quote(conf.prefix, safe="", errors="surrogatepass")
    root = f"{opts.get('ROOT', 'distlock')}/{PROTOCOL}/{prefix}/"
    return Located(endpoints, root, _context(alias, endpoints, opts))


def _context(
    alias: str, endpoints: tuple[Endpoint, ...], opts: Mapping[str, Any]
) -> ssl.SSLContext | None:
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    if ("USER" in opts) != ("PASSWORD" in opts):
        raise InvalidLockBackendError(f"{where}: USER and PASSWORD go together.")
    if "KEY_FILE" in opts and "CERT_FILE" not in opts:
        raise InvalidLockBackendError(f"{where}: KEY_FILE needs CERT_FILE.")
    files = [key for key in ("CA_FILE", "CERT_FILE", "KEY_FILE") if key in opts]
    if not any(each.tls for each in endpoints):
        if files:
            raise InvalidLockBackendError(
                f"{where}: {files[0]} needs addresses in LOCATION that begin with https."
            )
        return None
    try:
        context = ssl.create_default_context(cafile=opts.get("CA_FILE"))
        if "CERT_FILE" in opts:
            context.load_cert_chain(opts["CERT_FILE"], opts.get("KEY_FILE"))
    except (OSError, ssl.SSLError) as error:
        raise InvalidLockBackendError(
            f"{where}: {' or '.join(files)} cannot be loaded: {error}."
        ) from error
    return context
