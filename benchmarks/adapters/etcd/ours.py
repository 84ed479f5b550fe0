"""django-distlock in etcd."""

from __future__ import annotations

from typing import ClassVar

from ...adapter import Backend
from ..ours import OursLimited, OursShared
from ..redis.ours import OursRedis

__all__ = ["OursEtcd", "OursEtcdLimited", "OursEtcdShared"]


class OursEtcd(OursRedis):
    """The etcd backend, in a process that has its database open, too."""

    backend: ClassVar[Backend] = "etcd"


class OursEtcdShared(OursShared, OursEtcd):
    """The same, shared with others."""


class OursEtcdLimited(OursLimited, OursEtcd):
    """The same, held by four at once."""
