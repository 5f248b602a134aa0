"""Tests of `exporter/workers/`; a module without a test of its name has these:

- acting: tests/stories/test_command_honesty.py, tests/pruner/apply/test_reborn.py
- cancellation: tests/stories/test_interrupted.py
- client: tests/stories/test_reap.py
- fork_messages, fork_server: tests/workers/test_starter.py, tests/workers/test_worker.py
- frames, protocol: tests/workers/test_process.py, tests/workers/test_worker.py
- path_probe: tests/workers/test_path_prober.py
- privilege: tests/workers/test_worker.py
- used_again: tests/stories/test_reap.py, tests/pruner/apply/test_reborn.py
"""
