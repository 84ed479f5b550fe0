"""The OPTIONS of the consul backend."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...conf import OptionSpec
from ...http import TLS_SPEC
from ..options import one_of, seconds
from .sessions import LONGEST

__all__ = ["LEAST_SESSION", "LOCK_DELAY", "LONGEST_TTL", "PORT", "SPEC", "session_body"]

LEAST_SESSION: Final = 10.0  # seconds; session_ttl_min of a server that was not told otherwise
LOCK_DELAY: Final = 15.0
LONGEST_TTL: Final = LONGEST * 0.75
PORT: Final = 8500
DEFAULT_URL: Final = f"http://127.0.0.1:{PORT}"


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


SPEC: Final[OptionSpec] = {
    "BEHAVIOR": one_of("release", "delete"),
    "DATACENTER": _text,
    "LOCK_DELAY": seconds(0, 60),
    "NODE": _text,
    "NODE_CHECKS": _words,
    "ROOT": _root,
    "SERVICE_CHECKS": _words,
    "SESSION_TTL_MIN": seconds(1, 3600),
    "TOKEN": _token,
    **TLS_SPEC,
}


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
