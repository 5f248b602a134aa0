"""Makes homes in Hermes's own format, without Hermes: for `demo`, for tests, for benchmarks.

Nothing here is used on a home that a person lives in.
"""
