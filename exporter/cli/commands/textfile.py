"""`textfile`: the metrics as a file, for node_exporter."""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser, Namespace

from exporter.cli import arguments
from exporter.errors import ExporterError, PartlyDoneError, UsageError

SUMMARY = "write the metrics once, for node_exporter's textfile collector"
DESCRIPTION = """\
Scan each home once and write its metrics to PATH. The file is replaced as a
whole: a reader sees the old metrics or the new ones, never a part. Run it from
a timer or cron. If a home cannot be read, the file is still written, with
hermes_home_up 0, and the exit status is 3."""
EXAMPLES = (
    (
        "where Debian's node_exporter looks",
        "hermes-exporter textfile /var/lib/prometheus/node-exporter/hermes.prom",
    ),
)
_READABLE_BY_ALL = 0o644


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the file; its name must end in .prom")
    arguments.add_collectors(parser)


def run(args: Namespace) -> int:
    from exporter.agent import one_shot

    metrics, down = one_shot.metrics_text(arguments.options(args))
    write_atomically(args.path, metrics)
    if down:
        raise PartlyDoneError(
            f"cannot be read: {', '.join(down)}; written all the same, with hermes_home_up 0"
        )
    return 0


def write_atomically(path: str, data: bytes) -> None:
    """Replace `path` as a whole: a reader sees the old metrics or the new ones, never a part."""
    if not path.endswith(".prom"):
        raise UsageError(f"cannot write {path}: node_exporter reads only *.prom; use {path}.prom")
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # The temporary name does not end in .prom: node_exporter would read it half written.
        descriptor, temporary = tempfile.mkstemp(".tmp", f".{name}.", folder)
    except OSError as error:
        raise ExporterError(f"cannot write {path}: {error.strerror} ({folder})") from error
    try:
        _fill(descriptor, data)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            raise ExporterError(f"cannot write {path}: {error.strerror}; left as it was") from error
        raise
    _sync_folder(folder)


def _fill(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        os.fchmod(file.fileno(), _READABLE_BY_ALL)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: str) -> None:
    """Make the rename durable; if the folder cannot be opened, this is skipped."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
