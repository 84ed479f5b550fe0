"""One packing process; it may stop itself at the worst moment.

Started as ``python -m testproject.shop.demo.packer ORDER PARCEL ALIAS fenced|unfenced stop|go``.
With ``stop`` it sends itself SIGSTOP after the lease was checked and before the UPDATE is sent,
where no lock can help. It prints what came of it as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from typing import Any

import django

TTL_SECONDS = 1.0


def main(pk: int, parcel: str, using: str, *, fenced: bool, stop: bool) -> dict[str, Any]:
    """Pack an order under its lock, and tell what came of it."""
    django.setup()
    from django.db import connections, router

    from django_distlock import FenceRejectedError, LeaseLostError
    from testproject.shop.models import Order
    from testproject.shop.packing import pack, pack_without_fence, packing_of

    order = Order.objects.get(pk=pk)
    write = pack if fenced else pack_without_fence
    told: dict[str, Any] = {"outcome": "nothing"}
    try:
        with packing_of(order, using=using, ttl=TTL_SECONDS) as lease, ExitStack() as stack:
            told["token"] = lease.fencing_token
            if stop:
                connection = connections[router.db_for_write(Order)]
                stack.enter_context(connection.execute_wrapper(_stop_before_update))
            write(order, parcel, lease=lease)
            told["outcome"] = "written"
    except FenceRejectedError as error:
        told |= {"outcome": "refused", "said": str(error)}
    except LeaseLostError as error:  # at the end of the block, when all is done
        told["said"] = str(error)
    return told


def _stop_before_update(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    if sql.startswith("UPDATE"):
        os.kill(os.getpid(), signal.SIGSTOP)  # all of its threads: nothing is renewed any more
    return execute(sql, params, many, context)


if __name__ == "__main__":
    _, _pk, _parcel, _using, _how, _when = sys.argv
    _told = main(int(_pk), _parcel, _using, fenced=_how == "fenced", stop=_when == "stop")
    sys.stdout.write(json.dumps(_told) + "\n")
