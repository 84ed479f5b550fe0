"""Many signals at random moments of blocks, on every store: nothing stays held."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from django_distlock import locks
from django_distlock.testing.contract.parts import Interruptions

ALIASES = (
    "locmem",
    "sqlite",
    "postgresql",
    "mariadb",
    "row-postgresql",
    "row-mariadb",
    "advisory-postgresql",
    "advisory-mariadb",
    "redis",
    "redlock-3",
    "etcd",
    "consul",
    "zookeeper",
)
SEVERAL = ("locmem", "sqlite", "postgresql", "mariadb", "redis", "etcd", "consul", "zookeeper")


@pytest.mark.timeout(400)
# A connection that a driver was about to hand out is collected, and says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("alias", [each for each in ALIASES if each in settings.DISTLOCKS])
def test_a_signal_at_any_moment(alias: str) -> None:
    many = {"locmem": 5_000}.get(alias, 300)  # after the contract's, at every moment of a block
    sweep: Any = type("Sweep", (Interruptions,), {"alias": alias, "interrupts": many})()
    sweep.test_a_signal_at_any_moment()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "alias",
    [each for each in ALIASES if each in settings.DISTLOCKS and not locks[each].thread_sensitive],
)
def test_a_signals_handler_that_uses_locks(alias: str) -> None:
    sweep: Any = type("Sweep", (Interruptions,), {"alias": alias, "interrupts": 300})()
    sweep.test_a_signals_handler_that_uses_locks()


# As in the contract, where no block has several locks.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("alias", [each for each in SEVERAL if each in settings.DISTLOCKS])
def test_several_locks_at_many_moments(alias: str) -> None:
    # What several locks add is the engine's: all of its moments are tried in memory.
    apart = 1 if alias == "locmem" else 4
    sweep: Any = type("Sweep", (Interruptions,), {"alias": alias, "moments_apart": apart})()
    sweep.interrupt_at_every_moment("several")
