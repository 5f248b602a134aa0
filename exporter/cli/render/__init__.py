"""What commands print: tables and colour on a terminal, plain aligned text in a pipe.

blocks      the parts of a report: lines and tables, without colour codes
plain_text  blocks as aligned text
rich_text   blocks with colour, by rich
output      chooses one of the two, and writes it
status, sessions, check   the reports of these commands, as blocks
"""
