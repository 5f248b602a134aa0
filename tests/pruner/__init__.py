"""Tests of `exporter/pruner/`; a module without a test of its name has these:

- beside: tests/pruner/apply/test_reborn.py
- expected: tests/pruner/apply/test_files.py, tests/pruner/gather/test_inventory_reader.py
- models: tests/pruner/decide/test_recorded_plans.py, tests/pruner/decide/policies/test_policies.py
- planning: tests/pruner/gather/test_unchanged.py
- requests: tests/pruner/gather/test_unchanged.py, tests/pruner/apply/test_recovery.py
"""
