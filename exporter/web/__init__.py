"""HTTP: the metrics, health, landing page and JSON, all served from memory."""
