"""Tests of `exporter/scan/`; a module without a test of its name has these:

- home, options: tests/scan/test_database_contents.py, tests/scan/test_matched_files.py
- mount_namespaces: tests/pruner/decide/policies/test_orphan_checkpoints.py
- probe: tests/scan/test_database_contents.py
"""
