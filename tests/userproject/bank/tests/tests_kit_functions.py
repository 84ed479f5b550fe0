"""The kit's fixtures, for pytest alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_distlock import lock
from django_distlock.testing import hold_elsewhere as Elsewhere
from django_distlock.testing import override_locks

from .. import services
from ..models import Account


@pytest.mark.django_db
def test_held_elsewhere(hold_elsewhere: Callable[..., Elsewhere], client: Any) -> None:
    account = Account.objects.create(owner="Ada")
    elsewhere = hold_elsewhere(services.lock_name(account.pk))
    assert client.get(f"/{account.pk}/deposit/").status_code == 409
    elsewhere.release()
    assert client.get(f"/{account.pk}/deposit/").status_code == 200


def test_held_until_the_end(hold_elsewhere: Callable[..., Elsewhere], db: None) -> None:
    hold_elsewhere("until the end")


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left() -> None:
    assert not lock("until the end").locked()


def test_no_database(locks_in_memory: override_locks) -> None:
    with lock("memory"):
        pass
    assert locks_in_memory.taken() == ["memory"]


@pytest.mark.override_locks(held={"busy"})
def test_marked(advance_clock: Callable[..., None]) -> None:
    assert lock("busy").acquire(wait=0) is None
    lease = lock("free").acquire()
    assert lease
    advance_clock(3600)
    assert lease.lost
