"""Releasing several leases, the last taken first: in few round trips, where their store can."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..lease import Lease
from ..transactions import any_open, may_be_elsewhere
from . import fork
from .flow import Attempt, Call, Flow

if TYPE_CHECKING:
    from ..backends.base import BaseLockBackend

__all__ = ["Leave", "leave_all"]

Leave: TypeAlias = "Callable[[Lease, BaseException | None, Attempt | bool], Flow[None]]"
"""What is done with each lease at the end of a block, given the error that has ended it.

And what has come of asking the store already, if it was asked: see `Lease._release`.
"""


def leave_all(
    leases: Sequence[Lease], body_error: BaseException | None, leave: Leave = Lease._leave
) -> Flow[BaseException | None]:
    """Leave each lease, the last taken first, whatever happens at the others; return what did."""
    first: BaseException | None = None
    left = list(leases)
    ahead: dict[int, Attempt] = {}
    try:
        try:
            for some in _batches(left):
                yield from _release_together(some, ahead)
        except BaseException:  # interrupted before the store was asked, or after its answer
            for lease in left:
                lease._drop()
            raise
        while left:
            try:
                lease = left.pop()
                yield from leave(lease, body_error or first, ahead.pop(id(lease), False))
            except GeneratorExit:
                for lease in left:
                    lease._drop()
                raise
            except BaseException as error:  # noqa: BLE001 - returned, after the others
                first = first or error
        return first
    finally:
        first = None  # it refers to this frame: see flow.run
        ahead.clear()


def _batches(leases: Sequence[Lease]) -> list[list[Lease]]:
    """Return those leases that can be released together, as many at once as each store takes."""
    found: list[list[Lease]] = []
    by_backend: dict[BaseLockBackend, list[Lease]] = defaultdict(list)
    for lease in leases:
        if lease._hold.backend.at_once > 1 and lease._hold.claim.is_exclusive:
            by_backend[lease._hold.backend].append(lease)
    for backend, some in by_backend.items():
        if backend.conf.in_transaction == "hold" and (may_be_elsewhere() or any_open()):
            continue  # the transaction decides, one by one
        found += [some[i : i + backend.at_once] for i in range(0, len(some), backend.at_once)]
    return [batch for batch in found if len(batch) > 1]


def _release_together(leases: Sequence[Lease], ahead: dict[int, Attempt]) -> Flow[None]:
    """Ask a store once to free what nothing else keeps; note what has come of it for each."""
    fork.check()
    begun = [lease for lease in leases if not lease._done and lease._hold.begin_release()]
    if not begun:
        return
    backend, claims = begun[0]._hold.backend, [lease._hold.claim for lease in begun]
    try:
        answers = yield Call(backend, "release_many", (claims,), claims[0].name)
        attempts = [Attempt(0.0, ours) for ours in answers]
    except GeneratorExit:
        raise
    except BaseException as error:  # noqa: BLE001 - each release decides, and raises it again
        attempts = [Attempt(0.0, error=error) for _ in begun]
    ahead.update((id(lease), each) for lease, each in zip(begun, attempts, strict=True))
