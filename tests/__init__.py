"""Tests of `exporter/`; a module without a test of its name has these:

- snapshot: tests/scan/test_database_contents.py, tests/collectors/test_exposition.py
"""
