"""The agent of this host: it scans, reaps and prunes homes, alone or for a command."""
