"""The etcd backend against real servers."""
