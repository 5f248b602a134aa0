"""Facts that the kernel proves about processes: which ones run, their open files, their locks.

The agent asks with its own privileges (`survey`). A worker asks only about locks, as the owner of a
home and while it has no connection open (`exporter.hermes.sqlite_locks`, `openers`). Each answer
proves that a process is alive, proves that it is dead, or says why this host cannot tell
(`Blindness`).
"""
