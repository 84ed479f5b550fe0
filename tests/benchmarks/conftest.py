"""Measuring Redis needs the store of that name."""

from __future__ import annotations

from tests.servers import chosen

collect_ignore_glob = [] if "redis" in chosen() else ["test_redis.py"]
if "consul" not in chosen():
    collect_ignore_glob.append("test_consul.py")
if not {"redis", "postgresql"} <= set(chosen()):
    collect_ignore_glob.append("test_adminpage.py")
