"""The engine: everything between `lock("x")` and the store, for all stores, sync and async.

In the order in which an acquisition passes them:

- ``blocks``: entering and leaving; what `Lock` and `LockGroup` share.
- ``acquisition``, ``flow``: from the options to the lease; the algorithm, its steps and drivers.
- ``calls``: how a store is called, and what its errors become.
- ``hold``, ``registry``, ``watchdog``: a grant and its states, who holds what, and renewal.
- ``threads``, ``worker``, ``loops``, ``fork``: threads of our own, event loops, forks.
- ``values``, ``names``, ``durations`` and the others: what all of these are written with.
"""
