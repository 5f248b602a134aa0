"""The configuration: one table of settings, read from YAML with an error line for every mistake.

units      what a value may look like: durations, sizes, percentages, counts, words
table      how a setting is declared: unit, default, help
settings   THE table: every key there is, as frozen dataclasses
document   YAML with line numbers
build      document + table → settings, or one line per problem
load       from a path to Settings
paths      where things are when nobody says
reference  docs/configuration.md, rendered from the table
"""
