"""Real parts for tests: hermes-agent releases, their homes and processes, Prometheus, the agent."""
