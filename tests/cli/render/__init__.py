"""Tests of `exporter/cli/render/`; a module without a test of its name has these:

- blocks, check, plain_text: tests/cli/render/test_render.py
- rich_text, sessions, status: tests/cli/render/test_render.py
- explain: tests/cli/commands/test_commands.py
- history: tests/cli/render/test_render.py, tests/stories/test_command_honesty.py
- kept: tests/stories/test_no_false_nothing.py
- left_alone: tests/stories/test_interrupted.py
- plan: tests/cli/render/test_render.py, tests/cli/commands/test_reap.py
- prune_plan: tests/cli/render/test_render.py, tests/stories/test_prune.py
"""
