"""Tests of `exporter/cli/`; a module without a test of its name has these:

- arguments, command_line, parser: tests/cli/test_main.py
- agent_service: tests/agent/test_command_runs.py
- agent_cost, connect: tests/agent/test_command_socket.py
- output: tests/cli/render/test_render.py, tests/cli/test_main.py
"""
