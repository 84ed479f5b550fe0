"""Importing once what each of hundreds of forked processes would import for itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection

from .adapter import Adapter
from .processes import in_child

__all__ = ["preload"]


def preload(adapters: Sequence[Adapter]) -> None:
    """Import here what these adapters import when they are opened and used.

    Which modules those are is found out in a process of its own: this one, from which all that is
    measured is forked, has to stay without connections and threads.
    """
    for name in in_child(_imported, adapters):
        with suppress(ImportError):  # no module of its own, but what another one put there
            import_module(name)


def _imported(pipe: Connection, adapters: Sequence[Adapter]) -> list[str]:
    before = set(sys.modules)
    for adapter in adapters:
        with suppress(Exception):  # the measurement meets it, too, and says so beside the others
            adapter.open()
            adapter.warm_up()
            adapter.close()
    return [name for name in sys.modules if name not in before]  # in the order of their imports
