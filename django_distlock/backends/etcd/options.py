"""LOCATION and OPTIONS of the etcd backend, read and judged."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from ...conf import AliasConf, OptionSpec
from ...exceptions import InvalidLockBackendError
from ...http import TLS_SPEC, Endpoint, endpoints_of, tls_of
from ..options import secret, text

__all__ = ["SPEC", "Located", "locate"]

PORT: Final = 2379
PROTOCOL: Final = "1"
"""The number of how the keys are read and written; it is part of each of them."""


SPEC: Final[OptionSpec] = {
    "USER": text,
    "PASSWORD": secret,
    "ROOT": text,
    **TLS_SPEC,
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
    hint = "A user is OPTIONS['USER'] and OPTIONS['PASSWORD']"
    endpoints = endpoints_of(alias, conf.location, PORT, "an etcd", hint)
    if ("USER" in opts) != ("PASSWORD" in opts):
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]['OPTIONS']: USER and PASSWORD go together."
        )
    prefix = quote(conf.prefix, safe="", errors="surrogatepass")
    root = f"{opts.get('ROOT', 'distlock')}/{PROTOCOL}/{prefix}/"
    return Located(tuple(endpoints), root, tls_of(alias, opts, endpoints))
