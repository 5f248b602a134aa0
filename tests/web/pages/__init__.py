"""Tests of `exporter/web/pages/`; a module without a test of its name has these:

- environment: tests/web/pages/test_host.py
- explanation: tests/web/pages/test_sessions.py, tests/cli/render/test_render.py
"""
