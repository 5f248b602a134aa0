"""Tests of `exporter/agent/`; a module without a test of its name has these:

- act_request: tests/pruner/apply/test_reborn.py, tests/stories/test_command_honesty.py
- auto_heal, healing: tests/pruner/apply/test_reborn.py
- auto_prune: tests/agent/test_auto_prune_races.py, tests/agent/test_auto_prune_failures.py
- auto_reap: tests/stories/test_reap.py
- home_state: tests/agent/test_scan_loop.py, tests/stories/test_command_honesty.py
- home_workers: tests/agent/test_scan_loop.py, tests/agent/test_scheduler.py
- label_limits: tests/agent/test_state_store.py
- manual_prune: tests/stories/test_prune.py
- memory_service, socket_messages: tests/agent/test_command_socket.py
- run_messages: tests/agent/test_command_runs.py
- manual_reap, manual_run, run_result: tests/cli/commands/test_reap.py
- obstacles: tests/agent/test_auto_prune_failures.py
- options: tests/cli/test_main.py
- run_history: tests/stories/test_command_honesty.py
- scan_request: tests/agent/test_scan_loop.py
- service: tests/cli/commands/test_commands.py, tests/stories/test_command_honesty.py
- status: tests/cli/commands/test_commands.py, tests/agent/test_daemon.py
- systemd: tests/deploy/test_service.py
- trend_table: tests/agent/test_trends.py
- watched_homes: tests/agent/test_scan_loop.py, tests/agent/test_home_finder.py
"""
