"""Tests of `exporter/discovery/`; a module without a test of its name has these:

- inspection: tests/discovery/test_homes.py
"""
