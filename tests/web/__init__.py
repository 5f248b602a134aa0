"""Tests of `exporter/web/`; a module without a test of its name has these:

- connection, limits, response: tests/web/test_server.py
- landing, published: tests/web/test_routes.py
"""
