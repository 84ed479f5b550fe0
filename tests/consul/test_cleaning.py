"""What those who died leave behind, and batches that are more than one transaction."""

from __future__ import annotations

import re
import time
from io import StringIO

import pytest
from django.core.management import call_command

from django_distlock import lock
from django_distlock.core.values import CleanPolicy, Refusal
from tests.claims import claim, granted
from tests.consul.tools import Opener, end_sessions, keys_of
from tests.servers import Consul

AT_ONCE = CleanPolicy(older_than=0.0)


def test_marks_and_entries_of_the_dead_are_removed(opened: Opener, server: Consul) -> None:
    """Remove what no session stands behind any more, in one transaction that compares."""
    backend = opened(server.url, BEHAVIOR="release")
    holder, waiter = claim(backend, "a"), claim(backend, "a")
    granted(backend, holder)
    assert isinstance(backend.try_acquire(waiter, 20.0), Refusal)
    assert backend.clean_batch(AT_ONCE, "").removed == 0
    end_sessions(server, backend)
    assert len(keys_of(server, backend)) == 3
    assert backend.clean_batch(CleanPolicy(older_than=3600), "").removed == 0
    dry = backend.clean_batch(CleanPolicy(older_than=0.0, dry_run=True), "")
    assert (dry.removed, len(keys_of(server, backend))) == (1, 3)
    assert backend.clean_batch(AT_ONCE, "").removed == 1
    assert keys_of(server, backend) == []


def test_an_idle_key_is_removed_after_its_time(opened: Opener, server: Consul) -> None:
    backend = opened(server.url, BEHAVIOR="release")
    names = [f"{number}" for number in range(20)]
    for name in names:
        one = claim(backend, name)
        granted(backend, one)
        assert backend.release(one)
    assert backend.clean(older_than=60).removed == 0
    cursor: str | None = ""
    removed = 0
    while cursor is not None:
        done = backend.clean_batch(CleanPolicy(older_than=0.0, batch=3), cursor)
        assert done.seen <= 3
        removed, cursor = removed + done.removed, done.cursor
    assert removed == len(names)
    assert keys_of(server, backend) == []


def test_a_key_that_is_none_of_ours_is_left(opened: Opener, server: Consul) -> None:
    """Hold nobody up by what somebody else has written below our root, and show it not."""
    backend = opened(server.url)
    one = claim(backend, "a")
    key = f"{backend._folder}{one.key[:40]}/lock"
    server.ask("PUT", f"/v1/kv/{key}", {"o": 1})
    assert backend.inspect("a") is None
    granted(backend, one)
    assert backend.release(one)


@pytest.mark.parametrize("lost", [0, 69])
def test_many_are_renewed_and_the_lost_ones_told(opened: Opener, server: Consul, lost: int) -> None:
    """Renew more than one transaction holds, of which one cannot."""
    backend = opened(server.url)
    some = [claim(backend, f"{number}") for number in range(70)]
    for each in some:
        granted(backend, each)
    server.ask("DELETE", f"/v1/kv/{backend._folder}{some[lost].key[:40]}/lock")
    assert backend.renew_many(some) == [number != lost for number in range(70)]
    for number, each in enumerate(some):
        assert backend.release(each) is (number != lost)


def test_an_owner_that_asks_late_keeps_its_token(opened: Opener, server: Consul) -> None:
    """Grant an owner that asks late its old token, as long as nobody took the lock."""
    backend = opened(server.url)
    one = claim(backend, "a", ttl=0.2)
    token = granted(backend, one)
    time.sleep(0.25)
    assert backend.renew(one) is False
    late = one._replace(ttl=20.0)
    assert granted(backend, late) == token
    assert backend.release(late)


def test_the_command(name: str) -> None:
    with lock(name, using="consul"):
        out = StringIO()
        call_command("cleanlocks", using=["consul"], stdout=out)
        assert re.fullmatch(r"consul: 0 of [1-9]\d* removed \(idle for 7d\)\n", out.getvalue())
