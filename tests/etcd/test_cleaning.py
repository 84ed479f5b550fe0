"""There is nothing to clean in etcd, and who asks for it is told."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command

from django_distlock import lock, locks
from tests.servers import Etcd


def test_a_name_leaves_nothing_and_the_command_says_so(server: Etcd, name: str) -> None:
    with lock(name, using="etcd"):
        pass
    key = locks["etcd"].key(name)
    assert not [each for each in server.all_keys() if key in each]
    out, err = StringIO(), StringIO()
    call_command("cleanlocks", using=["etcd"], stdout=out, stderr=err, no_color=True)
    assert out.getvalue() == "etcd: nothing to clean, idle names leave nothing there\n"
    assert err.getvalue() == ""
