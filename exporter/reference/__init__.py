"""The command line as data, and what is written from it: the manual page, the shell completion."""
