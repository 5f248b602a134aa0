"""Tests of `exporter/pruner/decide/policies/`; a module without a test of its name has these:

- checkpoints, conversations, empty_sessions: tests/pruner/decide/policies/test_policies.py
- expired_trash, old_sessions, request_dumps: tests/pruner/decide/policies/test_policies.py
- stale_checkpoints, trivial_sessions: tests/pruner/decide/policies/test_policies.py
"""
