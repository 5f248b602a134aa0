"""Tests of `exporter/hermes/`; a module without a test of its name has these:

- compaction: tests/scan/test_database.py
- continuity: tests/pruner/decide/policies/test_orphan_files.py
- message_queries: tests/scan/test_database.py, tests/scan/test_database_contents.py
- merge_plan: tests/pruner/apply/test_merge_sessions.py
- own_pruning: tests/pruner/gather/test_inventory_reader.py
- own_pruning: tests/pruner/decide/policies/test_policies.py
- payload_sizes, prune_queries: tests/pruner/gather/test_inventory_reader.py
- prunable_names: tests/pruner/apply/test_files.py, tests/pruner/apply/test_store_projects.py
- routing: tests/scan/test_database.py, tests/hermes/test_odd_rows.py
- schema: tests/scan/test_database_contents.py
- session_queries: tests/scan/test_database.py, tests/scan/test_session_table.py
- yaml_document: tests/hermes/test_home_facts.py
- session_state, table_rows: tests/pruner/apply/test_changed_since_plan.py
"""
