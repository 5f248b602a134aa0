"""How the agent is put on hosts: service, container, package, and the servers it works with."""
