"""Which open sessions are dead: rules that decide (pure), and the reap itself."""
