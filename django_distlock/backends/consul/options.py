"""The LOCATION and the OPTIONS of the consul backend."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...conf import OptionSpec
from ...exceptions import InvalidLockBackendError
from ...http import Endpoint, parse_endpoint
from .sessions import LONGEST

__all__ = ["SPEC", "endpoints_of", "tls_of"]

LEAST_SESSION: Final = 10.0  # seconds; session_ttl_min of a server that was not told otherwise
LOCK_DELAY: Final = 15.0
PORT: Final = 8500
DEFAULT_URL: Final = f"http://127.0.0.1:{PORT}"


def _seconds(value: Any, least: float, most: float) -> float:
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if wrong or not least <= value <= most:
        raise ValueError(
            f"a number of seconds from {least:g} to {most:g} is expected, not {value!r}"
        )
    return float(value)


def _least_session(value: Any) -> float:
    return _seconds(value, 1, 3600)


def _lock_delay(value: Any) -> float:
    return _seconds(value, 0, 60)


def _behavior(value: Any) -> str:
    if value not in ("release", "delete"):
        raise ValueError(f"'release' or 'delete' is expected, not {value!r}")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or not value.isascii():
        raise ValueError(f"a str of printable ASCII is expected, not {value!r}")
    return value


def _token(value: Any) -> str:
    try:
        return _text(value)
    except ValueError:
        raise ValueError("an ACL token is a str of printable ASCII") from None  # never shown


def _root(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", value, re.ASCII):
        raise ValueError(f"letters, digits, dots, dashes and single slashes, not {value!r}")
    return value


def _words(value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"a list of str is expected, not {value!r}")
    return [_text(each) for each in value]


def _path(value: Any) -> str:
    if not isinstance(value, str | Path) or not Path(value).exists():
        raise ValueError(f"there is no file {str(value)!r}")
    return str(value)


SPEC: Final[OptionSpec] = {
    "BEHAVIOR": _behavior,
    "CA_FILE": _path,
    "CERT_FILE": _path,
    "DATACENTER": _text,
    "KEY_FILE": _path,
    "LOCK_DELAY": _lock_delay,
    "NODE": _text,
    "NODE_CHECKS": _words,
    "ROOT": _root,
    "SERVICE_CHECKS": _words,
    "SESSION_TTL_MIN": _least_session,
    "TOKEN": _token,
}


def endpoints_of(alias: str, location: Any) -> list[Endpoint]:
    """Return the URLs of an alias's agents, or raise InvalidLockBackendError."""
    where = f"DISTLOCKS[{alias!r}]['LOCATION']"
    given = DEFAULT_URL if location is None else location
    urls = [given] if isinstance(given, str) else given
    if not isinstance(urls, list | tuple) or not urls:
        raise InvalidLockBackendError(
            f"{where} is the URL of a Consul agent, such as {DEFAULT_URL!r}, or a list of them, "
            f"not {location!r}."
        )
    found: list[Endpoint] = []
    for url in urls:
        try:
            endpoint = parse_endpoint(url, PORT)
        except ValueError as error:
            raise InvalidLockBackendError(
                f"{where}: {error}. An ACL token is OPTIONS['TOKEN']."
            ) from error
        if endpoint in found:
            raise InvalidLockBackendError(f"{where} names {endpoint} twice.")
        found.append(endpoint)
    return found


def tls_of(
    alias: str, opts: Mapping[str, Any], endpoints: Sequence[Endpoint]
) -> ssl.SSLContext | None:
    """Return how the agents are spoken to by TLS; None when they are not."""
    where = f"DISTLOCKS[{alias!r}]['OPTIONS']"
    given = [key for key in ("CA_FILE", "CERT_FILE", "KEY_FILE") if key in opts]
    if not any(each.tls for each in endpoints):
        if given:
            raise InvalidLockBackendError(f"{where}: {given[0]} needs URLs that begin with https.")
        return None
    if "KEY_FILE" in opts and "CERT_FILE" not in opts:
        raise InvalidLockBackendError(f"{where}: KEY_FILE needs CERT_FILE.")
    try:
        context = ssl.create_default_context(cafile=opts.get("CA_FILE"))
        if "CERT_FILE" in opts:
            context.load_cert_chain(opts["CERT_FILE"], opts.get("KEY_FILE"))
    except (ssl.SSLError, OSError) as error:
        raise InvalidLockBackendError(f"{where}: {', '.join(given)}: {error}.") from error
    return context


def session_body(opts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each session is made with, in addition to its TTL."""
    body: dict[str, Any] = {
        "LockDelay": f"{opts.get('LOCK_DELAY', LOCK_DELAY):g}s",
        "Behavior": opts.get("BEHAVIOR", "delete"),
        # Without this a session ends with the agent's health, while its holder still counts on it.
        "NodeChecks": opts.get("NODE_CHECKS", []),
    }
    if "SERVICE_CHECKS" in opts:
        body["ServiceChecks"] = [{"ID": each} for each in opts["SERVICE_CHECKS"]]
    if "NODE" in opts:
        body["Node"] = opts["NODE"]
    return body


LONGEST_TTL: Final = LONGEST * 0.75
