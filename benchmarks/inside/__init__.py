"""Code that runs inside the real Hermes, by its interpreter: it may import nothing of ours."""
