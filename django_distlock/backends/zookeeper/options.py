"""LOCATION and OPTIONS of the zookeeper backend, read and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...conf import AliasConf, OptionSpec
from ...exceptions import InvalidLockBackendError
from ..options import mapping, one_of, positive, tls_context

__all__ = ["SPEC", "Facts", "facts_of", "require_kazoo"]

PROTOCOL: Final = "1"
"""The number of how the nodes are written and read; it is part of their paths."""

SESSION = 10.0
_TLS = {
    "CA": "ca",
    "CERT": "certfile",
    "KEY": "keyfile",
    "KEY_PASSWORD": "keyfile_password",
    "VERIFY": "verify_certs",
    "CHECK_HOSTNAME": "check_hostname",
}


def require_kazoo(alias: str) -> None:
    """Raise InvalidLockBackendError unless kazoo is installed."""
    try:
        import kazoo
    except ImportError as error:
        raise InvalidLockBackendError(
            f"DISTLOCKS[{alias!r}]: the driver of ZooKeeper is not installed: "
            'pip install "django-distlock[zookeeper]".'
        ) from error
    del kazoo


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or "//" in value:
        raise ValueError(f"a path such as '/shop' is expected, not {value!r}")
    parts = value.strip("/").split("/")
    if any(part in (".", "..") or not part.isprintable() for part in parts):
        raise ValueError(f"a path without '.', '..' and control characters, not {value!r}")
    return value.rstrip("/")


def _pairs(value: Any) -> list[tuple[str, str]]:
    wrong = ValueError("a list of (scheme, credential) is expected, as [('digest', 'user:word')]")
    if not isinstance(value, list | tuple):
        raise wrong
    for each in value:
        if not isinstance(each, list | tuple) or len(each) != 2:
            raise wrong
        if not all(isinstance(word, str) and word for word in each):
            raise wrong
    return [(scheme, credential) for scheme, credential in value]


def _tls(value: Any) -> dict[str, Any]:
    given = mapping(value)
    if unknown := sorted(str(key) for key in given if key not in _TLS):
        raise ValueError(f"unknown keys {', '.join(unknown)}; known are {', '.join(sorted(_TLS))}")
    for key, what in given.items():
        kind = bool if key in ("VERIFY", "CHECK_HOSTNAME") else str
        if not isinstance(what, kind):
            raise ValueError(f"{key} is a {kind.__name__}, not {what!r}")
    # kazoo loads the files in the background, where an error is not reported.
    tls_context(given, ("CA", "CERT", "KEY"), given.get("KEY_PASSWORD", ""))
    return given


SPEC: Final[OptionSpec] = {
    "SESSION_TIMEOUT": positive,
    "CHROOT": _path,
    "AUTH": _pairs,
    "ACL": one_of("open", "creator"),
    "SASL": mapping,
    "TLS": _tls,
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Where the servers are and how to talk to them."""

    hosts: str
    """As kazoo takes them: ``host:port``, with commas."""
    base: str
    """The path below which each lock has a node."""
    timeout: float
    """The session's, as it is asked for."""
    closed: bool
    """Whether the nodes are for their creator alone."""
    client: Mapping[str, Any] = field(repr=False)
    """What the client is also made with."""

    @property
    def patience(self) -> float:
        """How long one server may take to let us in, so that there is time for the others.

        And for one more try, if it is the only one: one that just starts may lose what we said.
        """
        return max(0.5, self.timeout / (self.hosts.count(",") + 3))


def facts_of(alias: str, conf: AliasConf, opts: Mapping[str, Any]) -> Facts:
    """Return what LOCATION and OPTIONS mean, or raise InvalidLockBackendError."""
    where = f"DISTLOCKS[{alias!r}]"
    hosts, chroot = _hosts(f"{where}['LOCATION']", conf.location)
    if chroot and "CHROOT" in opts:
        raise InvalidLockBackendError(
            f"{where}: a chroot stands in LOCATION and in OPTIONS; leave one of them out."
        )
    chroot = opts.get("CHROOT", chroot)
    client: dict[str, Any] = {"auth_data": opts.get("AUTH", [])}
    if "SASL" in opts:
        client["sasl_options"] = opts["SASL"]
    if "TLS" in opts:
        if opts["TLS"].get("CHECK_HOSTNAME") and not opts["TLS"].get("VERIFY", True):
            raise InvalidLockBackendError(
                f"{where}['OPTIONS']['TLS']: CHECK_HOSTNAME needs VERIFY, which checks the "
                "certificate that the name stands in."
            )
        # kazoo does not check the name unless told to.
        checks = {"use_ssl": True, "check_hostname": opts["TLS"].get("VERIFY", True)}
        client |= checks | {_TLS[key]: value for key, value in opts["TLS"].items()}
    known = bool(opts.get("AUTH") or "SASL" in opts)
    closed = opts.get("ACL", "creator" if known else "open") == "creator"
    if closed and not known:
        raise InvalidLockBackendError(
            f"{where}['OPTIONS']: 'ACL': 'creator' needs AUTH or SASL, by which servers know us."
        )
    base = f"{chroot}/distlock/{PROTOCOL}"
    return Facts(hosts, base, opts.get("SESSION_TIMEOUT", SESSION), closed, client)


def _hosts(where: str, location: Any) -> tuple[str, str]:
    """Return the servers and the chroot of a LOCATION."""
    if isinstance(location, list | tuple) and location:
        if not all(isinstance(host, str) for host in location):
            raise InvalidLockBackendError(f"{where} is a list of 'host:port', not {location!r}.")
        location = ",".join(location)
    if not isinstance(location, str) or not location.strip(", "):
        raise InvalidLockBackendError(
            f"{where} is the servers, as 'host:2181,host:2181' or a list of them, with a chroot "
            f"such as '/shop' at the end if there is one; not {location!r}."
        )
    hosts, slash, path = location.partition("/")
    words = [host.strip() for host in hosts.split(",") if host.strip()]
    for word in words:
        port = word.rpartition(":")[2] if ":" in word.rpartition("]")[2] else "2181"
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidLockBackendError(f"{where}: {word!r} is no 'host:port'.")
    try:
        chroot = _path(slash + path) if path else ""
    except ValueError as error:
        raise InvalidLockBackendError(f"{where}: {error}.") from error
    return ",".join(words), chroot
