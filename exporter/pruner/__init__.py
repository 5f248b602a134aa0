"""Giving back disk: pressure, policies, plan, and the careful taking of what the plan names."""
