"""Tests of `exporter/collectors/`; a module without a test of its name has these:

- agent, homes: tests/collectors/test_collectors.py, tests/stories/test_versions.py
- database, disk, processes, sessions: tests/stories/test_versions.py
- prune: tests/stories/test_prune.py, tests/collectors/test_series_budget.py
- prune_reasons: tests/cli/render/test_render.py, tests/web/pages/test_host.py
- reaper: tests/stories/test_reap.py
- verdicts: tests/stories/test_unprivileged.py, tests/stories/test_reap.py
- render: tests/collectors/test_collectors.py
- usage: tests/agent/test_usage_counters.py, tests/stories/test_versions.py
"""
