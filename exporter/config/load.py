"""Read Settings from a path, or one line per problem."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TypeVar

from exporter.config.settings import Settings
from exporter.errors import ConfigError
from exporter.text import escape_control

if TYPE_CHECKING:
    from exporter.config.build import Problem

T = TypeVar("T")

MAX_BYTES = 1024 * 1024
MAX_PROBLEMS = 20
"""A file that is not a configuration at all must not flood the terminal."""


def load(path: str | None) -> Settings:
    """Return the settings of a file; the defaults for None.

    Raise ConfigError with one line per problem.
    """
    if path is None:
        return Settings()
    settings, problems = read(path)
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def read(path: str) -> tuple[Settings, list[str]]:
    """Return the settings of a file and its problems; with a problem, do not use the settings."""
    return read_settings(path, Settings, "--config.file", "scan:")


def read_settings(path: str, kind: type[T], flag: str, example: str) -> tuple[T, list[str]]:
    """Return the settings of a file and its problems.

    `flag` is the option that named the file; `example` is a key for the error line. A problem is
    `FILE:LINE: key: what is wrong, and the fix`, or `FILE: why` if the file cannot be read.
    """
    # Importing the YAML parser takes longer than all other imports, and only a file needs it.
    from exporter.config.build import Builder
    from exporter.config.table import section_of
    from exporter.config.yaml_tree import DocumentError, MappingNode, parse

    name = escape_control(path)
    defaults = kind()
    try:
        root = parse(_text(path))
    except OSError as error:
        return defaults, [f"{name}: cannot be read: {error.strerror}; check {flag}"]
    except DocumentError as error:
        where = name if error.line is None else f"{name}:{error.line}"
        return defaults, [f"{where}: {escape_control(error.reason)}"]
    if root is None:
        return defaults, []
    if not isinstance(root, MappingNode):
        return defaults, [f"{name}:{root.line}: expected keys, e.g. '{example}', at the top"]
    builder = Builder()
    settings: T = builder.section(section_of(kind), root, defaults, "")
    return settings, _lines(name, builder.problems)


def _text(path: str) -> str:
    """Return the file's text.

    A pipe or device is refused: an empty read would silently mean the defaults.
    """
    from exporter.config.yaml_tree import DocumentError

    with open(path, "rb", opener=without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DocumentError(None, "is not a regular file; give a YAML file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DocumentError(None, "is larger than 1 MiB; is this the configuration?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"not UTF-8: byte 0x{data[error.start]:02x}; save the file as UTF-8"
        raise DocumentError(line, reason) from None


def without_waiting(path: str, flags: int) -> int:
    """Open without blocking: opening a pipe would wait for its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _lines(name: str, problems: list[Problem]) -> list[str]:
    problems = sorted(problems, key=lambda problem: problem.line)
    lines = [f"{name}:{problem.line}: {problem.key}: {problem.fix}" for problem in problems]
    if len(lines) > MAX_PROBLEMS:
        left = len(lines) - MAX_PROBLEMS
        lines[MAX_PROBLEMS:] = [f"{name}: and {left} more problems; is this the configuration?"]
    return lines
