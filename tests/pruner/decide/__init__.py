"""Tests of `exporter/pruner/decide/`; a module without a test of its name has these:

- findings, items: tests/pruner/decide/policies/test_policies.py
- inventory: tests/pruner/gather/test_inventory_reader.py, tests/pruner/decide/test_protection.py
- lineage: tests/pruner/decide/test_protection.py, tests/pruner/decide/test_plan_properties.py
- plan: tests/pruner/decide/policies/test_policies.py, tests/pruner/decide/test_plan_properties.py
- report: tests/pruner/decide/test_recorded_plans.py
- room: tests/pruner/decide/test_thresholds.py, tests/stories/test_full_disk.py
- stores: tests/pruner/decide/test_caps.py
- selection: tests/pruner/decide/test_thresholds.py
- trash_wait: tests/pruner/apply/test_reborn.py
"""
