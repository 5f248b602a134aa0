"""Grafana dashboards for on-call, and the Python that writes them."""
