"""`held()` of the etcd backend: what it asks does not grow with each lock."""

from __future__ import annotations

import pytest

from django_distlock.backends.etcd import EtcdBackend
from django_distlock.backends.etcd.inspect import ENDS
from django_distlock.core.values import Claim
from tests.claims import claim, granted
from tests.etcd.tools import Opener, tally
from tests.servers import Etcd


def hold(backend: EtcdBackend, name: str, count: int) -> list[Claim]:
    """Take so many locks; return their claims."""
    claims = [claim(backend, f"{name}:{number}") for number in range(count)]
    for each in claims:
        granted(backend, each)
    return claims


def names_of(claims: list[Claim]) -> list[str]:
    """Return the names in order."""
    return sorted(each.name for each in claims)


def test_requests_for_10_and_for_300_locks(server: Etcd, opened: Opener, name: str) -> None:
    backend = opened(server.url, ROOT=f"looking-{name}")
    few = hold(backend, f"{name} few", 10)
    with tally(backend) as counted:
        found = list(backend.scan(""))
    assert sorted(info.name for info in found) == names_of(few)
    assert all(info.expires_at is not None for info in found)
    assert counted == {"range": 1, "timetolive": 10}

    many = hold(backend, f"{name} many", 300)
    with tally(backend) as counted:
        found = list(backend.scan(""))
    assert sorted(info.name for info in found) == names_of(few + many)
    assert sum(info.expires_at is not None for info in found) == ENDS
    assert counted == {"range": 1, "timetolive": ENDS}
    # Of one lock it is always told.
    without = next(info for info in found if info.expires_at is None)
    told = backend.inspect(without.name)
    assert told is not None
    assert told.expires_at is not None
    for each in few + many:
        assert backend.release(each)


def test_the_ends_of_all_pages_are_counted_together(
    server: Etcd, opened: Opener, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_distlock.backends.etcd.inspect.PAGE", 4)
    monkeypatch.setattr("django_distlock.backends.etcd.inspect.ENDS", 6)
    backend = opened(server.url, ROOT=f"pages-{name}")
    claims = hold(backend, name, 11)
    with tally(backend) as counted:
        found = list(backend.scan(""))
    assert sorted(info.name for info in found) == names_of(claims)
    assert [info.expires_at is not None for info in found] == [True] * 6 + [False] * 5
    assert counted["timetolive"] == 6
    for each in claims:
        assert backend.release(each)
