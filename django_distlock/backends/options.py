"""What values of OPTIONS are judged by, for all backends.

Each of these takes a value and returns what it means, or raises ValueError that says what is
expected; a backend's ``options`` map its names to them: see `conf.OptionSpec`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = [
    "SIZE_REMEDY",
    "TLS_FILES",
    "file_name",
    "mapping",
    "one_of",
    "positive",
    "seconds",
    "secret",
    "text",
    "tls_context",
    "tls_remedy",
    "true_or_false",
    "whole_number",
]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def true_or_false(value: Any) -> bool:
    """Judge what is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"True or False is expected, not {value!r}")
    return value


def positive(value: Any) -> float:
    """Judge a positive number of seconds."""
    if not _is_number(value) or not 0 < value < 1e9:
        raise ValueError(f"a positive number of seconds is expected, not {value!r}")
    return float(value)


def seconds(least: float, most: float) -> Callable[[Any], float]:
    """Return what judges a number of seconds in this range."""

    def judge(value: Any) -> float:
        if not _is_number(value) or not least <= value <= most:
            raise ValueError(
                f"a number of seconds from {least:g} to {most:g} is expected, not {value!r}"
            )
        return float(value)

    return judge


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """Return what judges a whole number in this range."""

    def judge(value: Any) -> int:
        if not _is_number(value) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most} is expected, not {value!r}")
        return value

    return judge


def one_of(*words: str) -> Callable[[Any], str]:
    """Return what judges a choice between words."""

    def judge(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{' or '.join(map(repr, words))} is expected, not {value!r}")
        return str(value)

    return judge


def text(value: Any) -> str:
    """Judge a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"a str that is not empty is expected, not {value!r}")
    return value


def secret(value: Any) -> str:
    """Judge a text that is not empty, and never show it."""
    if not isinstance(value, str) or not value:
        raise ValueError("a str that is not empty is expected")
    return value


def file_name(value: Any) -> str:
    """Judge the name of a file, which is looked at when it is read."""
    return text(str(value) if isinstance(value, Path) else value)


def mapping(value: Any) -> dict[str, Any]:
    """Judge a dict; what else is given may be a secret, and is not shown."""
    if not isinstance(value, Mapping):
        raise ValueError(f"a dict is expected, not {type(value).__name__}")
    return dict(value)


TLS_FILES: Final = ("CA_FILE", "CERT_FILE", "KEY_FILE")


SIZE_REMEDY: Final = (
    "Make the names or the metadata shorter, or lock fewer at once: it was too much"
)
"""What to do where a request is larger than a store takes."""


def tls_remedy(where: str, options: str = "CA_FILE, CERT_FILE and KEY_FILE in OPTIONS") -> str:
    """Return what to do where TLS fails; ``options`` are those that are about it."""
    return f"Look at {options}, and whether {where} uses TLS"


def tls_context(
    given: Mapping[str, Any], names: tuple[str, str, str] = TLS_FILES, password: str = ""
) -> ssl.SSLContext:
    """Return a context of the files that ``given`` has under these names.

    Which are those of the authorities to trust instead of the machine's, of the certificate, and of
    its key. Raises ValueError that names what cannot be loaded.
    """
    ca, cert, key = names
    if key in given and cert not in given:
        raise ValueError(f"{key} needs {cert}")
    try:
        context = ssl.create_default_context(cafile=given.get(ca))
        if cert in given:
            # By a function, or the password of a key would be asked for at the terminal.
            context.load_cert_chain(given[cert], given.get(key), lambda: password)
    except OSError as error:  # ssl.SSLError is one
        files = " or ".join(name for name in names if name in given)
        raise ValueError(f"{files} cannot be loaded: {error}") from error
    return context
