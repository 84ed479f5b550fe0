"""Ways to take a lock in Redis, and on five Redis servers."""

from __future__ import annotations

from ...adapter import Adapter
from .alternatives import DjangoRedis, Pottery, PythonRedisLock, RedisPy, RedlockNg, Sherlock, Tooz
from .bare import BareClient, BareConnection, BareSocket, PushPop
from .majority import BareSockets, PotteryMajority, RedlockNgMajority
from .ours import (
    OursRedis,
    OursRedisLimited,
    OursRedisShared,
    OursRedlock,
    OursRedlockShared,
    OursScriptless,
)
from .semaphores import RedisRateLimiters, RedisSemaphore

__all__ = ["REDIS", "REDLOCK"]

REDIS: tuple[type[Adapter], ...] = (
    *(OursRedis, OursScriptless, OursRedisShared, OursRedisLimited),
    *(BareSocket, BareConnection, BareClient, PushPop),
    *(RedisPy, DjangoRedis, PythonRedisLock, Pottery, Sherlock, Tooz, RedlockNg),
    *(RedisRateLimiters, RedisSemaphore),
)
REDLOCK: tuple[type[Adapter], ...] = (
    *(OursRedlock, OursRedlockShared),
    *(BareSockets, RedlockNgMajority, PotteryMajority),
)
