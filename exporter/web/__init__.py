"""HTTP: the metrics, health, pages and JSON, all served from memory."""
