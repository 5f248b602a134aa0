"""hermes-exporter: see, reap and prune what hermes-agent leaves behind."""

__version__ = "0.1.0"
