"""Tests of `exporter/evidence/`; a module without a test of its name has these:

- blind_spots: tests/cli/render/test_render.py
- descriptor_scan: tests/evidence/test_survey.py, tests/evidence/test_holders.py
- lost_locks: tests/evidence/test_survey.py, tests/evidence/test_survey_faked.py
- models: tests/evidence/test_survey.py, tests/cli/commands/test_commands.py
- process: tests/evidence/test_procfs.py, tests/evidence/test_freezer.py
"""
