"""Tests of `exporter/scan/disk/`; a module without a test of its name has these:

- cache, projects, repository: tests/scan/disk/test_scanner.py
"""
