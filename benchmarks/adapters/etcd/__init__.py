"""Ways to take a lock in etcd."""

from __future__ import annotations

from ...adapter import Adapter
from .alternatives import Etcd3gw, ToozEtcd
from .bare import BareCalls
from .ours import OursEtcd, OursEtcdLimited, OursEtcdShared

__all__ = ["ETCD"]

ETCD: tuple[type[Adapter], ...] = (
    *(OursEtcd, BareCalls, Etcd3gw, ToozEtcd),
    *(OursEtcdShared, OursEtcdLimited),
)
