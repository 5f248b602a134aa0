"""Pages written from the code: configuration, metrics, the manual page, shell completion."""
