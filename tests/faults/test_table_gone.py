"""The lock table emptied, or dropped and made anew, under a holder: the loss is noticed."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from django_distlock import LeaseLostError, LockBackendError, LockNotHeldError, lock
from tests.backends.outages import loss_told, taken
from tests.backends.tools import elsewhere
from tests.faults.places import Place


def empty(place: Place) -> None:
    """Remove all rows of the lock table, as an operator would."""
    truncate = place.store != "sqlite"
    place.execute("TRUNCATE TABLE distlock_lock" if truncate else "DELETE FROM distlock_lock")


def make_anew() -> None:
    """Drop the lock table and migrate again."""
    for target in ("zero", "0001"):
        elsewhere(
            lambda target=target: call_command(  # type: ignore[misc]
                "migrate", "django_distlock", target, database="own", verbosity=0
            )
        )


def test_the_watchdog_notices_an_emptied_table(place: Place, name: str) -> None:
    with loss_told() as told:
        lease = taken(name, ttl=6)
        token = lease.fencing_token
        empty(place)
        assert told.wait(5), "a third of the ttl, and time to spare"
    with pytest.raises(LeaseLostError, match="not ours any more"):
        lease.check()
    with pytest.raises(LeaseLostError), lease:
        pass
    with lock(name, using="own") as later:
        assert later.fencing_token > token


@pytest.mark.parametrize("verb", ["renew", "release"])
def test_a_holder_who_asks_is_told_and_the_next_is_left_alone(
    place: Place, name: str, verb: str
) -> None:
    lease = taken(name, ttl=60, renew=False)
    empty(place)
    following = elsewhere(lambda: taken(name, ttl=60, renew=False))
    assert following.fencing_token > lease.fencing_token
    with pytest.raises(LeaseLostError, match="expired or was forced"):
        getattr(lease, verb)()
    with pytest.raises(LockNotHeldError):
        lease.release()
    following.renew()
    following.release()


def test_a_table_dropped_and_made_anew(place: Place, name: str) -> None:
    with loss_told() as told:
        lease = taken(name, ttl=60, renew=False)
        make_anew()
        with pytest.raises(LeaseLostError):
            lease.renew()
        assert told.wait(15)
    with lock(name, using="own") as later:
        assert later.fencing_token > lease.fencing_token


def test_while_there_is_no_table_the_remedy_is_to_migrate(place: Place, name: str) -> None:
    lease = taken(name, ttl=60, renew=False)
    call_command("migrate", "django_distlock", "zero", database="own", verbosity=0)
    try:
        for work in (lease.renew, lock(f"{name}:2", using="own", wait=0).acquire):
            with pytest.raises(LockBackendError, match=r"manage\.py migrate django_distlock"):
                work()
        lease.check()  # nothing is known, and its time is not up
    finally:
        call_command("migrate", database="own", verbosity=0)
    with pytest.raises(LeaseLostError):
        lease.release()
