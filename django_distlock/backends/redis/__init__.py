"""Locks in Redis or Valkey: one server, the master of some replicas, or a cluster."""

from __future__ import annotations

from .backend import RedisBackend

__all__ = ["RedisBackend"]
