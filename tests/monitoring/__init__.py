"""Tests of metrics, traces and the health check, with the real libraries."""
