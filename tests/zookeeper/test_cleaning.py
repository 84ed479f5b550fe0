"""Nodes that servers without containers leave behind, and what removes them."""

from __future__ import annotations

import re
from io import StringIO

from django.core.management import call_command

from django_distlock import lock
from django_distlock.core.values import CleanPolicy
from tests.claims import claim, granted
from tests.servers import ZooKeeper
from tests.zookeeper.tools import Opener, ask


def test_plain_nodes_that_nobody_uses_are_removed(
    server: ZooKeeper, opened: Opener, name: str
) -> None:
    backend = opened(server.address, CHROOT=f"/clean{abs(hash(name))}")
    backend._algorithm._containers = False
    idle, held = claim(backend, f"{name}:idle"), claim(backend, f"{name}:held")
    granted(backend, idle, limit=5.0)
    token = granted(backend, held)
    assert backend.release(idle)

    def there() -> list[bool]:
        nodes = [f"{backend.facts.base}/{each.key}" for each in (idle, held)]
        return [ask(backend, "Exists", node, None) is not None for node in nodes]

    for policy, removed, stay in (
        (CleanPolicy(older_than=3600.0), 0, True),
        (CleanPolicy(older_than=0.0, dry_run=True), 1, True),
        (CleanPolicy(older_than=0.0), 1, False),
    ):
        done = backend.clean_batch(policy, "")
        assert (done.removed, done.seen, done.cursor) == (removed, 2, None)
        assert there() == [stay, True]
    assert backend.renew(held)
    assert granted(backend, idle) > token  # made anew, though the process took it for known
    assert backend.release(idle)
    assert backend.release(held)


def test_the_command(name: str) -> None:
    with lock(name, using="zookeeper", wait=10):
        out = StringIO()
        call_command("cleanlocks", using=["zookeeper"], stdout=out)
        assert re.fullmatch(r"zookeeper: 0 of [1-9]\d* removed \(idle for 7d\)\n", out.getvalue())
