"""Running git on a home's repositories, without running anything they bring along.

The only place that runs git. A repository can name programs in its configuration, and an explicit
GIT_DIR makes git trust it whoever owns it; so one whose configuration holds more than Hermes
writes is refused, and what git would run by itself is switched off for the rest.
"""

from __future__ import annotations

import os
import re
import select
import stat
import subprocess  # noqa: TID251 - this is the module that may
import time
from typing import Final

from exporter.errors import HomeError
from exporter.hermes.small_files import read_small

TIMEOUT_SECONDS: Final = 20.0
OUTPUT_BYTES: Final = 16 * 1024 * 1024
_CONFIG_BYTES: Final = 64 * 1024

ALLOWED_KEYS: Final = frozenset(
    {
        # git init, on any filesystem and with newer defaults
        "core.repositoryformatversion",
        "core.filemode",
        "core.bare",
        "core.logallrefupdates",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.symlinks",
        "core.worktree",
        "extensions.objectformat",
        "extensions.refstorage",
        # Hermes
        "user.name",
        "user.email",
        "commit.gpgsign",
        "tag.gpgsign",
        "gc.auto",
    }
)
"""What the configuration of a shadow repository may hold: none of it names a program or a file."""

_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "submodule.recurse=false",
)
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin",
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
}

_SECTION = re.compile(rb"\[([A-Za-z][A-Za-z0-9-]*)\]")
_KEY = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


class GitError(HomeError):
    """Git could not be asked; the repository was left alone."""


class GitRefusedError(GitError):
    """The repository holds something by which it could make git run or read other things."""


class GitFailedError(GitError):
    """Git is missing, took too long, said too much, or failed."""


def run_git(
    git_dir: str,
    *arguments: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    output_bytes: int = OUTPUT_BYTES,
    program: str = "git",
) -> bytes:
    """What `git *arguments` prints for the repository at `git_dir`; raise GitError otherwise."""
    refuse_unfit_repository(git_dir)
    command = [program, "--no-pager"]
    for setting in _SETTINGS:
        command += ["-c", setting]
    try:
        process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**_ENVIRONMENT, "GIT_DIR": os.path.abspath(git_dir)},
        )
    except OSError as error:
        raise GitFailedError(f"cannot run git: {error.strerror}") from error
    with process:
        try:
            output = _read_all(process, time.monotonic() + timeout_seconds, output_bytes)
            status = process.wait(timeout_seconds)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise GitFailedError(
                f"git {arguments[0]} in {git_dir} took over {timeout_seconds:g} s"
            ) from error
        finally:
            process.kill()
    if status != 0:
        raise GitFailedError(f"git {arguments[0]} in {git_dir} failed with status {status}")
    return output


def _read_all(process: subprocess.Popen[bytes], deadline: float, limit: int) -> bytes:
    assert process.stdout is not None  # noqa: S101 - it is asked for above
    descriptor = process.stdout.fileno()
    output = bytearray()
    while len(output) <= limit:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return bytes(output)
        output += chunk
    raise GitFailedError(f"git printed more than {limit} bytes")


def refuse_unfit_repository(git_dir: str) -> None:
    """Raise GitRefusedError unless this is a plain repository, configured as Hermes does it."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(git_dir).st_mode)
    except OSError as error:
        raise GitFailedError(f"cannot read {git_dir}: {error.strerror}") from error
    if not is_folder:
        raise GitRefusedError(f"{git_dir} is not a directory; git was not run")
    for redirection in ("commondir", "objects/info/alternates", "objects/info/http-alternates"):
        if os.path.lexists(os.path.join(git_dir, redirection)):
            raise GitRefusedError(f"{git_dir} has {redirection}; git was not run")
    path = os.path.join(git_dir, "config")
    try:
        content = read_small(path, _CONFIG_BYTES)
    except HomeError as error:
        raise GitRefusedError(f"{error}; git was not run") from error
    for key in sorted(config_keys(content or b"", path) - ALLOWED_KEYS):
        raise GitRefusedError(f"{path} sets {key}; git was not run")


def config_keys(content: bytes, path: str) -> set[str]:
    """The `section.key` names of a git configuration; raise GitRefusedError if it is not plain.

    Git's own reader is more generous: subsections, a key behind a section on one line, a value
    over several lines. Hermes writes none of these, so each is a reason not to go on.
    """
    keys: set[str] = set()
    section = b""
    for line in content.replace(b"\r\n", b"\n").split(b"\n"):
        text = line.strip(b" \t")
        if not text or text[:1] in (b"#", b";"):
            continue
        header, key = _SECTION.fullmatch(text), _KEY.fullmatch(text)
        continued = (len(text) - len(text.rstrip(b"\\"))) % 2 == 1
        if header is not None:
            section = header[1]
        elif key is None or not section or continued or _CONTROL.search(text):
            raise GitRefusedError(
                f"{path} holds a line that Hermes does not write; git was not run"
            )
        else:
            keys.add((section + b"." + key[1]).decode().lower())
    return keys
