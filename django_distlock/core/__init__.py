"""The engine: everything between `lock("x")` and the store, for all stores, sync and async.

In the order in which an acquisition passes them:

- ``guard``, ``blocks``, ``cancel``: entering and leaving a block.
- ``acquisition``, ``flow``: from the options to the lease; the algorithm, its steps and drivers.
- ``calls``: how a store is called, and what its errors become.
- ``held``, ``upkeep``, ``watchdog``: what this process holds, its renewal and its release.
- ``threads``, ``worker``, ``offloop``, ``loops``: threads of our own, and event loops.
- ``values``, ``names``, ``durations`` and the others: what all of these are written with.
"""
