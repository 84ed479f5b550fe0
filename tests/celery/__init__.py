"""Tests of `locked_task` against real workers, with Redis as broker and result backend."""
