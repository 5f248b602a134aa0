"""Naming a fault of ours by its type and place, and not by what was being handled then."""

from __future__ import annotations

import os


def place_of(error: BaseException) -> str:
    """`KeyError in reader.py:42`: enough to find it, nothing that could be private."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    where = os.path.basename(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} in {where}:{trace.tb_lineno}"
