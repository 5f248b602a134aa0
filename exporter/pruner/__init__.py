"""Free disk space: gather an inventory, decide by thresholds and policies, apply the plan."""
