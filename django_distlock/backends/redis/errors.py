"""What an error of Redis means, and what to do about it."""

from __future__ import annotations

from ...core.checking import page
from ..options import tls_remedy

__all__ = ["asks_again", "is_conflict", "is_passing", "remedy"]

# What servers say while a replica takes over, or a slot is moved.
_PASSING = ("READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "TRYAGAIN", "LOADING")


def is_conflict(error: Exception) -> bool:
    """Return whether the store asks to try again in a moment.

    Others wrote each time that it was tried, the server has just started, or the cluster moves the
    slot: then a script that comes to a key that was moved already fails.
    """
    from redis import exceptions as kinds

    asks = kinds.WatchError | kinds.BusyLoadingError | kinds.TryAgainError
    return isinstance(error, asks) or "non local key" in str(error)


def is_passing(error: Exception) -> bool:
    """Return whether an error passes where a replica takes over from a server that is gone."""
    from redis import exceptions as kinds

    said = str(error)
    lasting = kinds.AuthenticationError | kinds.AuthorizationError | kinds.MaxConnectionsError
    if isinstance(error, lasting):
        return False
    gone = kinds.ConnectionError | kinds.TimeoutError | kinds.ReadOnlyError | kinds.ClusterDownError
    return isinstance(error, gone) or said.startswith(_PASSING) or "WAIT_REPLICAS" in said


def asks_again(error: Exception) -> bool:
    """Return whether what ended a wait says no more than that the next attempt will show.

    The connection was cut, or the server is no master any more, or no longer has the slot.
    """
    from redis import exceptions as kinds

    again = kinds.ConnectionError | kinds.ReadOnlyError | kinds.MovedError | kinds.AskError
    return isinstance(error, again) or str(error).startswith(("UNBLOCKED", *_PASSING))


def remedy(error: Exception, where: str) -> str:
    """Return what to do about an error; ``where`` is the server's address for people."""
    from redis import exceptions as kinds

    said = str(error)
    code = said.partition(" ")[0]
    if isinstance(error, kinds.AuthenticationError) or (
        code in ("WRONGPASS", "NOAUTH") or "unauthenticated" in said
    ):
        return f"Look at the user and the password of {where}"
    if isinstance(error, kinds.NoPermissionError) or code == "NOPERM":
        return (
            f"Allow the user of {where} the keys ~*distlock:1:* and the commands that the locks "
            f"use; see {page('howto/use-redis')}"
        )
    if isinstance(error, kinds.ReadOnlyError) or code == "READONLY":
        return f"{where} is a replica, which cannot be written: locks need the master"
    if isinstance(error, kinds.OutOfMemoryError) or code == "OOM":
        return f"The memory that {where} may use is full: raise its maxmemory, or make room"
    if "WRONGTYPE" in said:
        return (
            "A key of ours is used by another program: give the locks a database, or a KEY_PREFIX, "
            "of their own"
        )
    if isinstance(error, kinds.MaxConnectionsError) or "max number of clients" in said:
        return f"All connections that {where} allows are in use: raise its maxclients"
    if "MISCONF" in said:
        return f"{where} cannot save to its disk, and refuses to write until it can"
    if isinstance(error, kinds.BusyLoadingError) or code == "LOADING":
        return f"{where} has just started, and still reads its data: try again in a moment"
    if "unknown command" in said.lower() and "eval" in said.lower():
        return "Set 'SCRIPTING': False in OPTIONS: this server forbids scripts"
    if code == "BUSY":
        return f"A script keeps {where} busy: see SCRIPT KILL"
    if isinstance(error, kinds.MovedError | kinds.AskError | kinds.ClusterDownError) or (
        code in ("CLUSTERDOWN", "CROSSSLOT")
    ):
        return f"{where} is part of a cluster: set 'CLUSTER': True in OPTIONS, or look at its state"
    if "MAX_CONNECTIONS" in said:
        return f"Raise MAX_CONNECTIONS in OPTIONS, or look at why {where} answers slowly"
    if "WAIT_REPLICAS" in said:
        return f"Look at the replication of {where}, or lower WAIT_REPLICAS"
    if "[SSL" in said:
        return tls_remedy(where, "ssl_ca_certs, and the like, of LOCATION")
    if isinstance(error, kinds.TimeoutError):
        return f"{where} hangs or is cut off: look at it, and at the network (COMMAND_TIMEOUT)"
    return f"Look at {where} and its log"
