"""Histories under faults: clients write down all that they do, and a checker judges it.

In the manner of Jepsen (https://jepsen.io), for one machine. The checker sees the history and the
log of the guarded resource only; it knows nothing of how a lock is made.
"""
