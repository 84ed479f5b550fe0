"""Measure the locks beside the bare statements and beside other libraries.

See docs/explanation/performance.md for how, and for what the figures mean.
"""

from __future__ import annotations
