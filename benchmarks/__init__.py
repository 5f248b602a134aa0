"""How fast and how light this agent is, always beside what a user would have without it.

Times mean nothing on a busy machine, so each is a ratio to a peer that does the same job in the
same run, in alternating rounds. `cases/` has one module per benchmark.
"""
