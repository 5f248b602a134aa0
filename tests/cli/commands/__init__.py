"""Tests of `exporter/cli/commands/`; a module without a test of its name has these:

- check, demo, explain, sessions, status: tests/cli/commands/test_commands.py
- files: tests/cli/test_shipped_files.py
- history, purge: tests/stories/test_command_honesty.py
- prune: tests/stories/test_prune.py, tests/cli/test_main.py
- serve: tests/agent/test_daemon.py
- undo: tests/cli/commands/test_reap.py, tests/stories/test_command_honesty.py
"""
