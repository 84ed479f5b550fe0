"""Locks in Redis or Valkey: one node, its replicas, or a cluster."""
