"""One module per benchmark: its first line says what is measured, `run` yields report lines."""
