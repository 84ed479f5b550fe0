"""The flash sale demo: many processes, one stock, with and without a lock.

``worker`` is one buying process and ``work`` what it does; ``crew`` starts and ends the workers;
``race`` and ``kill`` are the two runs; ``figures`` turns records into numbers; ``screen`` shows
them.
"""
