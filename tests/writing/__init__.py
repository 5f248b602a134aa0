"""Tests of `exporter/writing/`; a module without a test of its name has these:

- emptied_rows: tests/pruner/apply/test_emptied.py
- index_upkeep, search_index: tests/pruner/apply/test_changed_since_plan.py
- session_end: tests/writing/test_connection.py, tests/reaper/test_reopen.py
- session_merge: tests/pruner/apply/test_merge_sessions.py
- stored_session: tests/pruner/apply/test_delete_sessions.py, tests/pruner/apply/test_recovery.py
- write_checks: tests/writing/test_connection.py
- vacuum: tests/pruner/apply/test_upkeep.py
"""
