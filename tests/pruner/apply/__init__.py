"""Tests of `exporter/pruner/apply/`; a module without a test of its name has these:

- execute, undo: tests/pruner/apply/test_changed_since_plan.py, tests/pruner/apply/test_recovery.py
- full_disk: tests/stories/test_full_disk.py
- git_activity: tests/pruner/apply/test_repositories.py, tests/pruner/apply/test_upkeep.py
- home_folder, move: tests/pruner/apply/test_files.py, tests/pruner/apply/test_repositories.py
- purge: tests/runs/test_trash.py, tests/pruner/apply/test_reborn.py
- recheck, restore_sessions: tests/pruner/apply/test_changed_since_plan.py
- registry: tests/pruner/apply/test_recovery.py
- remover: tests/pruner/apply/test_files.py, tests/stories/test_removers_killed.py
- rename: tests/pruner/apply/test_files.py
- session_trash: tests/pruner/apply/test_delete_sessions.py, tests/stories/test_damaged_trash.py
"""
