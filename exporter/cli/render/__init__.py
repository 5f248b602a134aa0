"""What commands print: tables and colour on a terminal, plain aligned text in a pipe.

blocks      the parts of a report: lines and tables, without colour codes
plain_text  blocks as aligned text
rich_text   blocks with colour, by rich

The other modules make reports of blocks. `exporter.cli.output` chooses the form and writes it.
"""
