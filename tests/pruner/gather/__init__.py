"""Tests of `exporter/pruner/gather/`; a module without a test of its name has these:

- inventory_sessions, session_files: tests/pruner/gather/test_inventory_reader.py
- earlier_runs: tests/pruner/gather/test_inventory_reader.py, tests/pruner/apply/test_reborn.py
- seen_deletions: tests/pruner/decide/policies/test_orphan_files.py
"""
