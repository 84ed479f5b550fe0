"""`expire_lease`: a lease is lost in the middle, as if the store had said so."""

from __future__ import annotations

from ..core import flow, registry
from ..core.flow import Flow
from ..core.hold import Hold
from ..exceptions import LockNotHeldError
from ..handler import locks
from ..lease import Lease
from .telling import atold, told

__all__ = ["aexpire_lease", "expire_lease"]

REASON = "a test said so"


def expire_lease(lease: Lease | str, *, using: str = "default", reason: str = REASON) -> None:
    """Make a lease lost as if the store had said so, and free the lock for others to take.

    ``lease`` is the lease, or the name of a lock that this process holds by the alias ``using``,
    where the lease is out of the test's reach. ``check()`` and the end of its block raise
    LeaseLostError with ``reason``, ``cancel_on_lost`` cancels, and the ``on_lost`` callbacks and
    receivers of `lock_released` have been called when this returns. Works on every backend. Raises
    LockNotHeldError when it is not held.
    """
    flow.run(_lose(lease, using, reason))
    told()


async def aexpire_lease(
    lease: Lease | str, *, using: str = "default", reason: str = REASON
) -> None:
    """Lose as `expire_lease`."""
    await flow.arun(_lose(lease, using, reason))
    await atold()


def _lose(lease: Lease | str, using: str, reason: str) -> Flow[None]:
    hold = _named(lease, using) if isinstance(lease, str) else _of(lease)
    renewing, hold.renewing = hold.renewing, False  # else a renewal may be the first to notice
    try:
        yield from flow.insist(hold.backend, "release", hold.claim)
    except BaseException:
        hold.renewing = renewing
        raise
    hold.lose(reason)


def _of(lease: Lease) -> Hold:
    lease.check()
    return lease._hold


def _named(name: str, using: str) -> Hold:
    backend = locks[using]
    here = {hold.claim.name: hold for hold in registry.every(backend) if not hold.is_lost()}
    if name not in here:
        names = ", ".join(map(repr, sorted(here))) or "nothing"
        raise LockNotHeldError(f"This process holds {names} of it", name=name, alias=using)
    return here[name]
