"""What `manage.py check --deploy` says of a ZooKeeper, which it asks."""

from __future__ import annotations

from django.core.checks import CheckMessage, Warning

from .errors import NoAnswerError
from .options import Facts
from .requests import kinds
from .session import Session

__all__ = ["check_deploy"]

_DOCS = "docs/reference/checks.md"
LIMIT = 5.0  # seconds that a check waits for the servers


def check_deploy(alias: str, facts: Facts, session: Session) -> list[CheckMessage]:
    """Return the messages for production."""
    from kazoo.exceptions import KazooException

    where = f"DISTLOCKS[{alias!r}]: {facts.hosts}"
    try:
        session.ask([kinds().Exists("/", None)], LIMIT)
    except (KazooException, NoAnswerError, OSError) as error:
        said = str(error) or type(error).__name__
        return [
            Warning(
                f"{where} could not be asked how it is set up: {said}.",
                hint=f"Run the check where it can be reached, as the user of AUTH. See {_DOCS}.",
                id="distlock.W030",
            )
        ]
    found: list[CheckMessage] = []
    if abs(session.timeout - facts.timeout) > 0.01:
        found.append(
            Warning(
                f"{where} keeps sessions for {session.timeout:g} s, not for the {facts.timeout:g} "
                "s of SESSION_TIMEOUT.",
                hint="The servers allow 2 to 20 of their ticks (minSessionTimeout, "
                f"maxSessionTimeout): ask for what they allow. See {_DOCS}.",
                id="distlock.W031",
            )
        )
    if "," not in facts.hosts:
        found.append(
            Warning(
                f"{where} is one server: when it is down there are no locks.",
                hint=f"Name all servers of the cluster, three or five. See {_DOCS}.",
                id="distlock.W032",
            )
        )
    return found
