"""Tests of `exporter/reaper/`; a module without a test of its name has these:

- change_ends: tests/reaper/test_execute.py, tests/reaper/test_reopen.py
- models: tests/reaper/test_verdict.py, tests/reaper/test_plan.py
- reap: tests/reaper/test_execute.py, tests/reaper/test_breaker.py, tests/stories/test_reap.py
- verdict_history: tests/reaper/test_verdict.py, tests/cli/commands/test_commands.py
"""
