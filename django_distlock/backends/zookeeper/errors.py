"""What an error of ZooKeeper means, and what to do about it."""

from __future__ import annotations

from ..options import tls_remedy

__all__ = ["LeftOutError", "NoAnswerError", "NotLetInError", "remedy"]


class NoAnswerError(Exception):
    """No server answered in time."""


class LeftOutError(NoAnswerError):
    """A server answered to what was asked later, and not to this."""


class NotLetInError(Exception):
    """The servers do not let us in, or what we are to say to them cannot be said."""


def remedy(error: Exception, hosts: str) -> str:
    """Return what to do about an error; ``hosts`` are the servers."""
    from kazoo import exceptions as kinds

    if isinstance(error, kinds.NoAuthError):
        return (
            "Look at AUTH: the nodes of the locks belong to another user, or to one that the "
            "ACL does not name"
        )
    refused = kinds.AuthFailedError | kinds.InvalidACLError | kinds.SASLException | NotLetInError
    if isinstance(error, refused):
        return (
            f"Look at AUTH and SASL, and at what {hosts} expects; SASL needs the package pure-sasl"
        )
    if isinstance(error, kinds.SessionExpiredError):
        return "The session ended, and the locks with it; the next attempt has a new one"
    if isinstance(error, kinds.UnimplementedError):
        return f"{hosts} is older than ZooKeeper 3.5"
    if "[SSL" in str(error):
        return tls_remedy(hosts, "TLS in OPTIONS")
    if isinstance(error, NoAnswerError | kinds.ConnectionLoss | kinds.ConnectionClosedError):
        return (
            f"Look at {hosts}: a majority of the servers has to run and to be reached, and to let "
            "one more client of this address in (maxClientCnxns)"
        )
    return f"Look at {hosts} and the log of the servers"
