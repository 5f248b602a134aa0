"""Run git on a home's repositories, without running programs that a repository names.

No other module runs git. A repository can name programs in its configuration, and an explicit
GIT_DIR makes git trust it, whatever its owner. So a repository is refused if its configuration has
keys that Hermes does not write, and everything that git would start by itself is switched off.

There are two ways to start git; all else is the same. Code that changes a repository starts git by
GitPython. A scan starts it plainly: GitPython would stay in the memory of every scan worker (3 to 5
MiB), and its import runs `git version` twice unless that is prevented.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import subprocess  # noqa: TID251 - this is the module that may
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Final, cast

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
"""Keys that the configuration of a shadow repository may have: none names a program or a file."""

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
_WITHOUT_GIT: Final = {
    "PATH": "/nonexistent",
    "GIT_PYTHON_GIT_EXECUTABLE": "/dev/null",  # not executable, not even by root
    "GIT_PYTHON_REFRESH": "quiet",
}
"""For the import of GitPython: it finds no git to run, and does not fail for that."""

Start = Callable[[list[str], Mapping[str, str]], "subprocess.Popen[bytes]"]
"""Starts a command in `/` with this environment and no input; raises OSError if it cannot."""

_SECTION = re.compile(rb"\[([A-Za-z][A-Za-z0-9-]*)\]")
_KEY = re.compile(rb"([A-Za-z][A-Za-z0-9-]*)\s*(?:=.*)?")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


class GitError(HomeError):
    """Git could not be run or failed; the repository was left alone."""


class GitRefusedError(GitError):
    """The repository has something that could make git run programs or read other files."""


class GitFailedError(GitError):
    """Git is missing, took too long, said too much, or failed."""


def start_plainly(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """For scans."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=environment,
    )


def start_by_gitpython(
    command: list[str], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """For code that changes a repository.

    Only `Git.execute` is used. A `Repo` parses the configuration itself, reads GIT_DIR and others
    from the environment, does not know reftable, and leaves `cat-file` processes running.
    """
    gitpython = _load_gitpython()
    if gitpython is None:
        return start_plainly(command, environment)
    try:
        with _only_environment(environment):
            # Not with `kill_after_timeout`: that runs `pgrep` or `ps`, and limits no output.
            started = gitpython.Git("/").execute(command, as_process=True, shell=False)
    except gitpython.GitCommandNotFound:
        # Without the cause, whose text is the command line with its paths.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
    # GitPython would send SIGTERM when `started` is collected, and wait without a limit.
    process, started.proc = started.proc, None
    return cast("subprocess.Popen[bytes]", process)


@cache
def _load_gitpython() -> ModuleType | None:
    """Return GitPython; None if it cannot be loaded. The first call is after any privilege drop.

    After the drop the owner may be unable to read the agent's installation: then git is started
    plainly. `git.refresh` is not needed, as every command names its program.
    """
    try:
        with _only_environment(_WITHOUT_GIT):
            import logging

            import git  # noqa: TID251 - the one place that may
    except (ImportError, OSError):
        return None
    logging.getLogger("git").setLevel(logging.CRITICAL + 1)  # it logs command lines, with paths
    return git


@contextmanager
def _only_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Replace `os.environ` for a moment: GitPython passes all of it on, and reads it at import.

    Safe because a worker has one thread.
    """
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_git(
    git_dir: str,
    *arguments: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
    output_bytes: int = OUTPUT_BYTES,
    program: str = "git",
    start: Start = start_plainly,
    default_hash: str = "",
) -> bytes:
    """Return what `git *arguments` prints for the repository `git_dir`; GitError if it fails.

    `default_hash` is for `git init`: sha1 or sha256. A git that knows only the first ignores it.
    """
    refuse_unfit_repository(git_dir)
    command = [program, "--no-pager"]
    for setting in _SETTINGS:
        command += ["-c", setting]
    environment = {**_ENVIRONMENT, "GIT_DIR": os.path.abspath(git_dir)}
    if default_hash:
        environment["GIT_DEFAULT_HASH"] = default_hash
    try:
        process = start([*command, *arguments], environment)
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
    """Return what git prints. Its error messages are dropped: they may quote paths and content."""
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
    output = bytearray()
    while pipes:
        ready, _, _ = select.select(pipes, [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError
        for pipe in ready:
            chunk = os.read(pipe.fileno(), 65536)
            if not chunk:
                pipes.remove(pipe)
            elif pipe is process.stdout:
                output += chunk
        if len(output) > limit:
            raise GitFailedError(f"git printed more than {limit} bytes")
    return bytes(output)


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
    """Return the `section.key` names of a git configuration.

    Git itself accepts more: subsections, a key behind a section on one line, a value over several
    lines. Hermes writes none of these, so each of them raises GitRefusedError.
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
