"""Tests of `exporter/runs/`; a module without a test of its name has these:

- breaker: tests/reaper/test_breaker.py
- folder, journal_file: tests/runs/test_journal.py
- journal_rows: tests/runs/test_salvage.py
- journal_counts, journal_reader: tests/runs/test_journal.py, tests/runs/test_summary.py
- models: tests/runs/test_journal.py, tests/reaper/test_execute.py
- no_space: tests/stories/test_first_full_disk.py
- recovery: tests/pruner/apply/test_recovery.py, tests/stories/test_damaged_trash.py
- remove_tree: tests/runs/test_trash.py
- reserve: tests/runs/test_journal.py, tests/stories/test_full_disk.py
- totals: tests/runs/test_trim.py
"""
