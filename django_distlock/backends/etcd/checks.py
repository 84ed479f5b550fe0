"""What `manage.py check --deploy` says of an etcd."""

from __future__ import annotations

from django.core.checks import CheckMessage

from .asking import Asker
from .options import Located

__all__ = ["check_deploy"]


def check_deploy(alias: str, located: Located, asker: Asker) -> list[CheckMessage]:
    """Return the messages for production."""
    return []
