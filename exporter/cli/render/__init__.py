"""What commands print: tables and colour on a terminal, plain aligned text in a pipe.

blocks    what a report is made of: lines and tables, without a word about colour codes
plain     blocks as aligned text
fancy     blocks with colour, by rich
output    which of the two this output gets, and writing it
status, sessions, check   the reports of these commands, as blocks
"""
