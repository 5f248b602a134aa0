"""Code that runs inside the real Hermes, in its interpreter: it may import nothing of ours."""
