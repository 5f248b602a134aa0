"""What takes long to read in a home and seldom changes, as bytes for a later process.

A command without an agent keeps it in its state directory, so that the next command need not read
it again. It is for figures only: a run that acts on a home reads all of it anew. A repository whose
folder changed is read again, a project or session that was written to is measured again. Bytes that
are damaged, of another format or of another home are ignored.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec
from msgspec import Struct

from exporter.hermes.payload_sizes import MeasuredSizes
from exporter.pruner.gather.inventory_reader import Measurements
from exporter.scan.disk.repository import KeptRepos

BYTES_MAX: Final = 8 * 1024 * 1024
_FORMAT: Final = 1
_MANY_FILES: Final = 1_000
_MANY_PROJECTS: Final = 20
_MANY_MESSAGES: Final = 20_000
"""A home with fewer of each is read again quickly, so nothing is kept of it."""
_REPOS_MAX: Final = 12_000
_PAIRS_BYTES_MAX: Final = 3 * 1024 * 1024
_PAIR_BYTES: Final = 16
"""Of `MeasuredSizes.pairs`: the key of a session and its size."""
_PROJECTS_MAX: Final = 10_000
_NOTHING: Final = MeasuredSizes(b"", 0, 0)


class KeptReadings(Struct, frozen=True, array_like=True):
    """The readings of one home."""

    format: int
    home: bytes
    """The path of the home."""
    database: tuple[int, int]
    """Device and inode of state.db; those of no file if there was none."""
    repos: KeptRepos
    measured: Measurements


_decoder: Final = msgspec.msgpack.Decoder(KeptReadings)


def dump(
    home: str, database: tuple[int, int], repos: KeptRepos, measured: Measurements
) -> bytes | None:
    """Return the readings as bytes, of a very large home only a part.

    None for a small home, which is read again quickly; and if that part is still too large.
    """
    if _is_small(repos, measured):
        return None
    payloads = measured.payloads
    if len(payloads.pairs) > _PAIRS_BYTES_MAX:
        payloads = _NOTHING
    projects = dict(list(measured.project_sizes.items())[:_PROJECTS_MAX])
    some = msgspec.structs.replace(repos, repos=repos.repos[:_REPOS_MAX])
    data = msgspec.msgpack.encode(
        KeptReadings(_FORMAT, os.fsencode(home), database, some, Measurements(payloads, projects))
    )
    return data if len(data) <= BYTES_MAX else None


def _is_small(repos: KeptRepos, measured: Measurements) -> bool:
    files = sum(each.reading.rest.files + each.reading.leaves.files for each in repos.repos)
    return (
        files < _MANY_FILES
        and len(measured.project_sizes) < _MANY_PROJECTS
        and measured.payloads.highest < _MANY_MESSAGES
    )


def load(data: bytes, home: str, database: tuple[int, int]) -> KeptReadings | None:
    """Return the readings; None if the bytes are damaged, of another format or of another home.

    If they are of another database, the sizes of its sessions are left out.
    """
    try:
        kept = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if kept.format != _FORMAT or kept.home != os.fsencode(home):
        return None
    if len(kept.measured.payloads.pairs) % _PAIR_BYTES:
        return None
    if kept.database != database:
        measured = msgspec.structs.replace(kept.measured, payloads=_NOTHING)
        return msgspec.structs.replace(kept, measured=measured)
    return kept
