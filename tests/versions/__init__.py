"""Tests of versioned models; an app for the models that they write."""

from __future__ import annotations
