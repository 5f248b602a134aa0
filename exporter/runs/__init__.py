"""Runs: what hermes-exporter does to a home, one run at a time, noted so that it can be undone."""
