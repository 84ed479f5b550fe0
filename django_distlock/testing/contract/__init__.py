"""The suite that every backend of django-distlock has to pass, and a backend of yours can.

It needs pytest (``pip install "django-distlock[contract]"``), and Django set up before the test
module is imported, as pytest-django does or ``django.setup()`` in a ``conftest.py``. Where
``DISTLOCKS`` has the alias ``"mine"``, this module is the whole suite:

    from django_distlock.testing.contract import LockBackendContract

    class TestMine(LockBackendContract):
        alias = "mine"

        def restart_store(self):        # a hook; the tests that need it are collected with it
            my_server.restart()

A store behind Django's database wants pytest-django's real transactions, too:
``pytestmark = pytest.mark.django_db(transaction=True)``.

Every test is written once and runs in two modes, ``sync`` with threads and ``async`` with tasks.
What a flag of the backend rules out is not collected, so that nothing is skipped; and what a flag
says that the backend cannot do is tested too. `ContractBase` lists the attributes and hooks by
which a class can tell what its store is like: its slowness, its server, how to count connections.
Other processes are started with the project's settings module, so the alias has to stand in it.

The parts are numbered as the promises of every backend:

1 exclusion; 2 only the owner releases or renews (ownership, handing); 3 no orphaned lock, and none
free too soon (liveness, min_hold); 4 fencing; 5 told when lost; 6 no lost wake-up, 7 no herd and 10
bounded waits (waiting); 8 nothing left behind (leftovers, interruptions, answers); 9 self-deadlock
is an error (re-entry); 11 visible and 12 the store's clock (visible). Shared locks, limits, names,
bad inputs, groups, leaders, cleaning and flags come on top.
"""

from __future__ import annotations

try:
    import pytest
except ImportError as error:
    raise ImportError(
        'The contract suite needs pytest: pip install "django-distlock[contract]"'
    ) from error

# Before the parts are imported, so that their failing asserts show the values.
pytest.register_assert_rewrite(f"{__name__}.parts")

from .base import ContractBase, applies_to_all, lacks, needs  # noqa: E402
from .parts import (  # noqa: E402
    Answers,
    Cleaning,
    Exclusion,
    Fencing,
    Flags,
    Groups,
    Handing,
    Inputs,
    Interruptions,
    Leading,
    Leftovers,
    Limits,
    Liveness,
    MinHold,
    Names,
    Ownership,
    Reentry,
    Shared,
    Told,
    Visible,
    Waiting,
)

__all__ = ["ContractBase", "LockBackendContract", "applies_to_all", "lacks", "needs"]


class LockBackendContract(
    Exclusion,
    Ownership,
    Handing,
    Liveness,
    MinHold,
    Shared,
    Limits,
    Fencing,
    Told,
    Waiting,
    Leading,
    Leftovers,
    Interruptions,
    Answers,
    Reentry,
    Visible,
    Names,
    Inputs,
    Groups,
    Cleaning,
    Flags,
):
    """The whole suite: derive from it, and name the ``alias``."""
