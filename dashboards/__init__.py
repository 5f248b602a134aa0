"""What on-call looks at: Grafana dashboards and the Python that writes them."""
