"""Tests of `exporter/demo/`; a module without a test of its name has these:

- checkpoints, files: tests/demo/test_home.py
- conversation: tests/demo/test_population.py, tests/demo/test_home.py
- database: tests/demo/test_schema.py
"""
