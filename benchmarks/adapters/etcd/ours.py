"""django-distlock in etcd."""

from __future__ import annotations

from typing import ClassVar

from ...adapter import Backend
from ..redis.ours import OursRedis

__all__ = ["OursEtcd"]


class OursEtcd(OursRedis):
    """The etcd backend, in a process that has its database open, too."""

    backend: ClassVar[Backend] = "etcd"
