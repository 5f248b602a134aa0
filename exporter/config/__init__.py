"""The configuration: one table of settings, read from YAML with an error line for every mistake.

units      the forms of values: durations, sizes, percentages, counts, words
table      how a setting is declared: unit, default, help
settings   THE table: every key, as frozen dataclasses
prune      the part of the table for the pruner
mode       observe or enforce
yaml_tree  YAML with line numbers
build      YAML tree + table → settings, or one line per problem
load       from a path to Settings
paths      default paths
web        the web configuration file: TLS, users, headers, rate limit

`exporter.reference.configuration` renders docs/configuration.md from the table.
"""
