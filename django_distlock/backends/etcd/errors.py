"""What etcd says when it does not do what it was asked, and what to do about it."""

from __future__ import annotations

import json
from typing import Final

from ...core.checking import page
from ...core.flow import UNREAD
from ...http import Answer, HttpError
from ..options import SIZE_REMEDY, tls_remedy

__all__ = ["EtcdError", "NoSuchLeaseError", "error_of", "is_error", "remedy"]

CANCELLED: Final = 1
UNKNOWN: Final = 2
NOT_FOUND: Final = 5
EXHAUSTED: Final = 8
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16


_STAYS = ("space exceeded", "larger than max")
_STOPS = ("closing", "stopped", "shutting down", "transport is", "EOF")
# JSON Web Tokens carry the revision of the users and roles.
_CHANGED = ("revision of auth store is old", "revision in header is old", "invalid auth token")


class EtcdError(Exception):
    """An answer of etcd that is an error; ``code`` is gRPC's."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code

    @property
    def passes(self) -> bool:
        """Whether it may be gone in a moment, or at another member.

        A leader is being elected, a member is being stopped, or there is too much.
        """
        if self.code in (UNAVAILABLE, EXHAUSTED):
            return not any(word in str(self) for word in _STAYS)
        stops = any(word in str(self) for word in _STOPS)
        return self.code == CANCELLED or (self.code in (UNKNOWN, INTERNAL) and stops)

    @property
    def is_login_over(self) -> bool:
        """Whether to log in again: the token has expired, or users or roles have changed."""
        return self.code == UNAUTHENTICATED or any(word in str(self) for word in _CHANGED)


class NoSuchLeaseError(EtcdError):
    """The lease on which something was to hang is gone."""


def is_error(answer: Answer) -> bool:
    """Return whether an answer of several lines ends with an error, whatever its status."""
    return answer.body.startswith(b'{"error"') or b'\n{"error"' in answer.body


def error_of(answer: Answer) -> EtcdError:
    """Return the error that an answer is."""
    try:
        said = json.loads(answer.body.strip().rpartition(b"\n")[2])
        if isinstance(said.get("error"), dict):  # a queue of several
            said = said["error"]
        # Up to etcd 3.5 "error" beside "message", and "grpc_code" in lines; from 3.6 on neither.
        text = str(said["message"] if "message" in said else said["error"])
        code = int(said["grpc_code"] if "grpc_code" in said else said["code"])
    except UNREAD:
        text, code = answer.body[:200].decode("utf-8", "replace").strip(), 0
        text = f"status {answer.status}: {text or 'no text'}"
        code = UNAVAILABLE if answer.status in (408, 502, 503, 504) else 0
    kind = NoSuchLeaseError if code == NOT_FOUND and "lease" in text else EtcdError
    return kind(text, code)


def remedy(error: Exception, where: str) -> str:
    """Return what to do about an error; ``where`` is the servers' addresses for people."""
    said = str(error)
    if isinstance(error, EtcdError):
        if "CommonName" in said:
            return (
                f"{where} takes no client certificate with a CommonName beside USER and PASSWORD "
                "at its JSON gateway: use a certificate without one; see "
                f"{page('howto/use-etcd')}"
            )
        if error.code == UNAUTHENTICATED or "authentication" in said or "user name" in said:
            return f"Look at USER and PASSWORD in OPTIONS, which {where} does not accept"
        if error.code == 7:
            return (
                f"Grant the user of {where} the role to read and write the keys under ROOT; see "
                f"{page('howto/use-etcd')}"
            )
        if "space exceeded" in said:
            return f"The database of {where} is full: compact and defragment it, disarm its alarm"
        if "larger than max" in said or "too large" in said:
            return SIZE_REMEDY
        if "too many operations" in said:
            return f"Leave --max-txn-ops of {where} at 128 at least, which is its default"
        if "different clusters" in said:
            return "Name the members of one cluster in LOCATION"
        if "status 404" in said:
            return f"{where} has no JSON gateway under /v3/: etcd 3.4 or newer is needed"
        if error.passes:
            return f"{where} has no leader, or is overloaded: look at `etcdctl endpoint status`"
    if "[SSL" in said:
        return tls_remedy(where)
    if isinstance(error, HttpError) and "did not answer" in said:
        return f"{where} hangs or is cut off: look at it, and at the network (COMMAND_TIMEOUT)"
    return f"Look at {where} and its log"
