"""What the hidden parts of the examples use."""

from __future__ import annotations

import io
import unittest

from django.test import SimpleTestCase
from django.test.runner import DiscoverRunner

__all__ = ["run_tests"]


def run_tests(*classes: type[SimpleTestCase]) -> None:
    """Run test classes as `manage.py test` does; raise AssertionError unless all pass."""
    runner = DiscoverRunner(verbosity=0, interactive=False)
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(each) for each in classes)
    runner.setup_test_environment()
    try:
        databases = runner.setup_databases()
        try:
            stream = io.StringIO()
            result = unittest.TextTestRunner(stream).run(suite)
        finally:
            runner.teardown_databases(databases)
    finally:
        runner.teardown_test_environment()
    assert result.wasSuccessful(), stream.getvalue()
    assert result.testsRun >= len(classes)
