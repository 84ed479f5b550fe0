"""What an error of Consul means, and what to do about it."""

from __future__ import annotations

from ...core.checking import page
from ...http import HttpError
from ..options import SIZE_REMEDY, tls_remedy
from .api import ConsulError

__all__ = ["remedy"]


def remedy(error: Exception, where: str) -> str:
    """Return what to do about an error; ``where`` are the agents' addresses."""
    if isinstance(error, HttpError) and error.turned_away:
        return (
            f"Look at the Consul agent at {where}: it is shut down, or has as many connections "
            "from this address as its http_max_conns_per_client allows"
        )
    if "[SSL" in str(error):
        return tls_remedy(where)
    if isinstance(error, HttpError):
        return f"Look at the Consul agent at {where}, and at the network (COMMAND_TIMEOUT)"
    if not isinstance(error, ConsulError):
        return f"Look at {where} and its log"
    said = error.said.lower()
    if error.status in (401, 403) or "acl not found" in said or "permission denied" in said:
        return (
            "Give OPTIONS['TOKEN'] a policy with key_prefix write on what ROOT says, and session "
            f"write on the agent's node; see {page('howto/use-consul')}"
        )
    if "no cluster leader" in said or error.passing:
        return f"{where} has no leader just now: look at consul operator raft list-peers"
    if "invalid session ttl" in said:
        return "Set OPTIONS['SESSION_TTL_MIN'] as session_ttl_min is set on the servers"
    if ("check" in said and "not found" in said) or "missing check" in said:
        return (
            "Look at OPTIONS['NODE_CHECKS'] and ['SERVICE_CHECKS']: the checks of the agent's node"
        )
    if "critical state" in said:
        return "Mend what fails that check, or take it out of OPTIONS['SERVICE_CHECKS'] or the like"
    if "missing node" in said:
        return "Look at OPTIONS['NODE']: the name of a node of the catalog, see consul members"
    if error.status == 413 or "too large" in said:
        return SIZE_REMEDY
    return f"Look at {where} and its log"
