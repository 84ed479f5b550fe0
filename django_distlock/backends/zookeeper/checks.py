"""What `manage.py check --deploy` says of a ZooKeeper, which it asks."""

from __future__ import annotations

from django.core.checks import CheckMessage

from ...core import checking
from .errors import NoAnswerError
from .options import Facts
from .requests import kinds
from .session import ZooKeeperSession

__all__ = ["check_deploy"]

LIMIT = 5.0  # seconds that a check waits for the servers


def check_deploy(alias: str, facts: Facts, session: ZooKeeperSession) -> list[CheckMessage]:
    """Return the messages for production."""
    from kazoo.exceptions import KazooException

    where = f"DISTLOCKS[{alias!r}]: {facts.hosts}"
    try:
        session.ask([kinds().Exists("/", None)], LIMIT)
    except (KazooException, NoAnswerError, OSError) as error:
        said = str(error) or type(error).__name__
        return [
            checking.warning(
                f"{where} could not be asked how it is set up: {said}.",
                hint="Run the check where it can be reached, as the user of AUTH.",
                id="distlock.W030",
            )
        ]
    found: list[CheckMessage] = []
    if abs(session.timeout - facts.timeout) > 0.01:
        found.append(
            checking.warning(
                f"{where} keeps sessions for {session.timeout:g} s, not for the {facts.timeout:g} "
                "s of SESSION_TIMEOUT.",
                hint="The servers allow 2 to 20 of their ticks (minSessionTimeout, "
                "maxSessionTimeout): ask for what they allow.",
                id="distlock.W031",
            )
        )
    if "," not in facts.hosts:
        found.append(
            checking.warning(
                f"{where} is one server: when it is down there are no locks.",
                hint="Name all servers of the cluster, three or five.",
                id="distlock.W032",
            )
        )
    return found
