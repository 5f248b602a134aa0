"""Tests of `exporter/config/`; a module without a test of its name has these:

- build, yaml_tree: tests/config/test_load.py
- mode, prune: tests/config/test_settings.py
- table: tests/config/test_settings.py, tests/reference/test_configuration.py
- units: tests/config/test_load.py, tests/config/test_settings.py
"""
