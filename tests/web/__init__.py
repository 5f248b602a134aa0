"""Tests of `exporter/web/`; a module without a test of its name has these:

- connection, limits, response: tests/web/test_server.py
- published, queries: tests/web/test_routes.py
"""
