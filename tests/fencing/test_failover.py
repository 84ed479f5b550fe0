"""Two hold one lock after a failover of Redis: the row refuses the one who was first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_distlock import FenceRejectedError
from tests.backends.tools import STORES
from tests.fencing.tools import somebody
from tests.servers import Redis, chosen

if TYPE_CHECKING:
    from tests.fencing.models import Account


class TestFailover:
    """Not collected unless redis is chosen."""

    __test__ = "redis" in chosen()

    @pytest.mark.parametrize("store", STORES[:1], indirect=True)
    def test_a_double_grant_spoils_no_row(self, account: Account, name: str) -> None:
        """Promote a replica that has not heard of the grant, as a failover does."""
        from tests.redis.tools import opener

        with (
            Redis(persistent=False) as master,
            Redis(persistent=False, replica_of=master) as replica,
            opener() as opened,
        ):
            replica.wait_for_link()
            old, new = opened(master.url()).alias, opened(replica.url()).alias
            replica.promote()
            first = somebody(name, old)
            account.balance = 1
            first.save(account)
            master.kill()
            second = somebody(name, new)
            first.check()  # both believe that they hold it: nobody can tell the first one
            second.check()
            account.refresh_from_db()
            account.balance = 2
            second.save(account)
            account.balance = 3
            with pytest.raises(FenceRejectedError):
                first.save(account)
            rows = type(account).objects.using(account._state.db)
            with pytest.raises(FenceRejectedError):
                rows.fenced(first).filter(pk=account.pk).update(balance=4)
            account.refresh_from_db()
            assert account.balance == 2
            second.release()
