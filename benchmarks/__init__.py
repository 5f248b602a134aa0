"""How fast and how light this agent is, always compared with what a user would have without it.

Times mean nothing on a busy machine. So each is a ratio to a peer that does the same job in the
same run, in alternating rounds. `cases/` has one module per benchmark.
"""
