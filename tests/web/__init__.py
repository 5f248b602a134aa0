"""Tests of `exporter/web/`; a module without a test of its name has these:

- connection, limits, response: tests/web/test_server.py
- published, queries: tests/web/test_routes.py
- client_hello, tls_context: tests/web/test_tls.py
- rate_limit: tests/web/test_security.py
"""
