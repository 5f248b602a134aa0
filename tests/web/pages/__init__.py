"""Tests of `exporter/web/pages/`; a module without a test of its name has these:

- environment: tests/web/pages/test_host.py
"""
