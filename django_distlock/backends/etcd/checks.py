"""What `manage.py check --deploy` says of an etcd, which it asks."""

from __future__ import annotations

from typing import Final

from django.core.checks import CheckMessage

from ...core import checking
from ...http import Endpoint, Http, HttpError, Request
from .errors import error_of
from .options import Located

__all__ = ["check_deploy"]

LIMIT: Final = 2.0  # seconds that a check waits for a server
_HERE: Final = ("localhost", "127.0.0.1", "::1")


def check_deploy(alias: str, located: Located, *, login: bool) -> list[CheckMessage]:
    """Return the messages for production."""
    found: list[CheckMessage] = []
    plain = [each for each in located.endpoints if not each.tls and each.host not in _HERE]
    if login and plain:
        found.append(
            checking.warning(
                f"DISTLOCKS[{alias!r}] sends its password to {plain[0]} in plain text.",
                hint="Use https, with CA_FILE in OPTIONS.",
                id="distlock.W041",
            )
        )
    clusters: dict[str, Endpoint] = {}
    members = 0
    for endpoint in located.endpoints:
        try:
            cluster, members = _members(endpoint, located)
        except HttpError as error:
            found.append(
                checking.warning(
                    f"DISTLOCKS[{alias!r}]: {endpoint} could not be asked for its "
                    f"cluster's members: {error}.",
                    hint="Run the check where it can be reached.",
                    id="distlock.W040",
                )
            )
            continue
        clusters.setdefault(cluster, endpoint)
    if len(clusters) > 1:
        one, other, *_ = clusters.values()
        found.append(
            checking.error(
                f"DISTLOCKS[{alias!r}]: {one} and {other} are of different clusters.",
                hint="They know nothing of each other's locks: name the members of one cluster.",
                id="distlock.E040",
            )
        )
    elif members > 1 and len(located.endpoints) == 1:
        found.append(
            checking.warning(
                f"DISTLOCKS[{alias!r}] names one of {members} members of its etcd.",
                hint="Name the others in LOCATION, too: it may be down.",
                id="distlock.W042",
            )
        )
    return found


def _members(endpoint: Endpoint, located: Located) -> tuple[str, int]:
    """Return the id of the cluster, and how many are in it."""
    http = Http([endpoint], tls=located.tls)
    try:
        answer = http.ask(Request("POST", "/v3/cluster/member/list", b"{}"), LIMIT)
    finally:
        http.close()
    if answer.status != 200:
        raise HttpError(str(error_of(answer)))
    said = answer.json()
    try:
        return str(said["header"]["cluster_id"]), len(said["members"])
    except (KeyError, TypeError) as error:
        raise HttpError(f"this is no answer of etcd's: {answer.body[:200]!r}") from error
