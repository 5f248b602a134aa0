"""Which open sessions are dead: rules that decide (pure), and later the reap itself."""
