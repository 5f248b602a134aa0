"""What can go wrong, as a tree.

ExporterError                one clear line for a person; never a traceback
├── UsageError               bad flag or argument            → exit 2
├── ConfigError              bad configuration file          → exit 2
├── PartlyDoneError          some homes could not be read    → exit 3
├── StateError               the agent's own state directory → exit 1
├── HomeError                one home cannot be read; the others go on
│   ├── DatabaseError        its state.db, with a `Trouble` that says why
│   ├── GitError             one of its repositories (exporter.hermes.git): refused or failed
│   ├── RunError             it cannot be acted on (exporter.runs)
│   └── RefusedError         its worker would not do what it was asked to do
└── WorkerError              a worker died, hung or spoke nonsense
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.snapshot import Trouble


class ExporterError(Exception):
    """A failure whose message is written for the operator: path, cause, what was left alone."""

    exit_status = 1


class UsageError(ExporterError):
    """The command line asks for something that does not exist."""

    exit_status = 2


class ConfigError(ExporterError):
    """The configuration is wrong; the message names file, line, key and the fix."""

    exit_status = 2


class PartlyDoneError(ExporterError):
    """What was asked for could be done for some homes only."""

    exit_status = 3


class StateError(ExporterError):
    """The state directory cannot be used."""


class HomeError(ExporterError):
    """One home cannot be read."""


class DatabaseError(HomeError):
    """state.db could not be read; `trouble` is the bounded reason that metrics show."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


class RefusedError(HomeError):
    """A worker understood what it was asked to do, and did not do it."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy
        """Another run was under way."""


class WorkerError(ExporterError):
    """A worker process failed its agent."""


def place_of(error: BaseException) -> str:
    """`KeyError in reader.py:42`: enough to find it, nothing that could be private."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    where = os.path.basename(trace.tb_frame.f_code.co_filename)
    return f"{type(error).__name__} in {where}:{trace.tb_lineno}"
