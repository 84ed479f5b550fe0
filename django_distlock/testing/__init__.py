"""For the tests of those who use or extend django-distlock.

`testing.contract` is the suite that every backend has to pass; it needs pytest.
"""

from __future__ import annotations
