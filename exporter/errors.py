"""All errors, as a tree.

ExporterError                one clear line for the operator; never a traceback
├── UsageError               bad flag or argument            → exit 2
├── ConfigError              bad configuration file          → exit 2
├── PartlyDoneError          some homes could not be read    → exit 3
├── InterruptedRunError      interrupted at once by a person → exit 130
├── StateError               the agent's own state directory → exit 1
│   └── StateUsedError       another agent uses it
├── HomeError                one home cannot be read; the others go on
│   ├── DatabaseError        its state.db; `Trouble` says why
│   ├── GitError             one of its repositories (exporter.hermes.git): refused or failed
│   ├── RunError             the agent cannot act on it (exporter.runs)
│   └── RefusedError         its worker refused the request
└── WorkerError              a worker died, hung or sent an invalid message
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from exporter.snapshot import Trouble

_OWN_CODE: Final = os.path.join(os.path.dirname(__file__), "")


class ExporterError(Exception):
    """A failure with a message for the operator: path, cause, and what was left untouched."""

    exit_status = 1


class UsageError(ExporterError):
    """The command line asks for something that does not exist."""

    exit_status = 2


class ConfigError(ExporterError):
    """The configuration is wrong; the message names file, line, key and the fix."""

    exit_status = 2


class PartlyDoneError(ExporterError):
    """The request was done for some homes only."""

    exit_status = 3


class InterruptedRunError(ExporterError):
    """A person interrupted the command: the next command finds out what it had done."""

    exit_status = 130


class StateError(ExporterError):
    """The state directory cannot be used."""


class StateUsedError(StateError):
    """Another agent uses the state directory."""


class HomeError(ExporterError):
    """One home cannot be read."""


class DatabaseError(HomeError):
    """state.db could not be read; `trouble` is the reason for metrics, one of a fixed set."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


class RefusedError(HomeError):
    """A worker understood the request and refused it."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy
        """True if another run was in progress."""


class WorkerError(ExporterError):
    """A worker process failed."""


def error_location(error: BaseException) -> str:
    """Return `KeyError in scan/reader.py:42`: enough to find the place, without private text.

    The place is the innermost one in our own code, or else the innermost of all.
    """
    name, own, any_place = type(error).__name__, "", ""
    trace = error.__traceback__
    while trace is not None:
        path, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        any_place = f" in {os.path.basename(path)}:{line}"
        if path.startswith(_OWN_CODE):
            own = f" in {path.removeprefix(_OWN_CODE)}:{line}"
        trace = trace.tb_next
    return name + (own or any_place)
