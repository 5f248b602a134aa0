"""The kind of each name in a home."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hermes import paths
from exporter.snapshot import DiskKind

NAMES = st.binary(min_size=1, max_size=40).filter(lambda n: b"/" not in n and b"\0" not in n)
HASHES = st.text("0123456789abcdef", min_size=16, max_size=16).map(str.encode)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"state.db", DiskKind.STATE_DB),
        (b"state.db-wal", DiskKind.STATE_WAL),
        (b"state.db-shm", DiskKind.STATE_WAL),
        (b"state.db-journal", DiskKind.STATE_WAL),
        (b"state.db.malformed-backup-20260101_000000", DiskKind.OTHER),
        (b"state.db.malformed-backup-20260101_000000-wal", DiskKind.OTHER),
        (b"kanban.db", DiskKind.OTHER),
        (b"interrupt_debug.log", DiskKind.LOGS),
        (b"config.yaml", DiskKind.OTHER),
        (b"sessions", DiskKind.OTHER),
        (b"checkpoints", DiskKind.OTHER),
        (b"logs", DiskKind.OTHER),
    ],
)
def test_kinds_of_files_and_symlinks_of_a_home(name: bytes, kind: DiskKind) -> None:
    assert paths.classify_entry(name, False) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"sessions", DiskKind.TRANSCRIPTS),
        (b"checkpoints", DiskKind.CHECKPOINTS_STORE),
        (b"logs", DiskKind.LOGS),
        (b"cache", DiskKind.CACHE),
        (b"image_cache", DiskKind.CACHE),
        (b"document_cache", DiskKind.CACHE),
        (b"audio_cache", DiskKind.CACHE),
        (b"browser_screenshots", DiskKind.CACHE),
        (b"images", DiskKind.CACHE),
        (b"pastes", DiskKind.CACHE),
        (b"cron", DiskKind.CRON),
        (b".hermes-exporter", DiskKind.TRASH),
        (b"state-snapshots", DiskKind.OTHER),
        (b"backups", DiskKind.OTHER),
        (b"session-exports", DiskKind.OTHER),
        (b"profiles", DiskKind.OTHER),
        (b"state.db", DiskKind.OTHER),
        (b"a-leak-of-tomorrow", DiskKind.OTHER),
    ],
)
def test_kinds_of_folders_of_a_home(name: bytes, kind: DiskKind) -> None:
    assert paths.classify_entry(name, True) is kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (b"session_20260101_120000_abcdef.json", DiskKind.TRANSCRIPTS),
        (b"20260101_120000_abcdef01.jsonl", DiskKind.TRANSCRIPTS),
        (b"cron_job_20260101_120000.json", DiskKind.TRANSCRIPTS),
        (b"session_any\nclient*id\xff.json", DiskKind.TRANSCRIPTS),
        (
            b"request_dump_20260101_120000_abcdef_20260101_120001_000001.json",
            DiskKind.REQUEST_DUMPS,
        ),
        (b"request_dump_odd id_1.json", DiskKind.REQUEST_DUMPS),
        (b"request_dump_.json", DiskKind.OTHER),
        (b"request_dump_x.json", DiskKind.OTHER),
        (b"request_dump_x_y.txt", DiskKind.OTHER),
        (b"sessions.json", DiskKind.OTHER),
        (b".sessions_k3j4.tmp", DiskKind.OTHER),
        (b".session_x.json", DiskKind.OTHER),
        (b".json", DiskKind.OTHER),
        (b"notes.txt", DiskKind.OTHER),
    ],
)
def test_kinds_of_files_of_sessions(name: bytes, kind: DiskKind) -> None:
    assert paths.classify_session_file(name, False) is kind


def test_no_folder_in_sessions_is_a_transcript() -> None:
    """saved/ holds files that the user asked for. A folder with a transcript's name is none."""
    for name in (b"saved", b"session_x.json", b"request_dump_x_y.json"):
        assert paths.classify_session_file(name, True) is DiskKind.OTHER


@given(NAMES)
def test_every_transcript_name_that_hermes_can_make_is_recognised(session: bytes) -> None:
    """Clients choose ids, and before 0.18 Hermes used them in file names unchanged."""
    assert (
        paths.classify_session_file(b"session_" + session + b".json", False) is DiskKind.TRANSCRIPTS
    )
    dump = b"request_dump_" + session + b"_20260101_120000_000000.json"
    assert paths.classify_session_file(dump, False) is DiskKind.REQUEST_DUMPS


@given(NAMES, st.booleans())
def test_every_entry_of_every_classified_folder_has_a_kind(name: bytes, is_folder: bool) -> None:
    for folder in (b"", paths.SESSIONS, paths.CHECKPOINTS):
        classify = paths.classifier(folder)
        assert classify is not None
        assert isinstance(classify(name, is_folder), DiskKind)


@given(NAMES)
def test_deeper_entries_have_the_kind_of_their_folder(folder: bytes) -> None:
    assert paths.classifier(b"cache/" + folder) is None


@given(HASHES)
def test_shadow_repositories_are_recognised_where_hermes_put_them(name: bytes) -> None:
    assert paths.classify_checkpoint(name, True) is DiskKind.CHECKPOINTS_LEGACY
    assert paths.is_shadow_repo(b"checkpoints", name)
    assert paths.is_shadow_repo(b"checkpoints/legacy-20260101-120000", name)
    assert not paths.is_shadow_repo(b"checkpoints/store", name)
    assert not paths.is_shadow_repo(b"checkpoints/legacy-20260101-120000/deeper", name)
    assert not paths.is_shadow_repo(b"", name)


@pytest.mark.parametrize(
    ("name", "is_folder", "kind"),
    [
        (b"store", True, DiskKind.CHECKPOINTS_STORE),
        (b".last_prune", False, DiskKind.CHECKPOINTS_STORE),
        (b"legacy-20260101-120000", True, DiskKind.CHECKPOINTS_ARCHIVE),
        (b"legacy-20260101-120000", False, DiskKind.CHECKPOINTS_STORE),
        (b"0123456789abcdef", False, DiskKind.CHECKPOINTS_STORE),
        (b"0123456789ABCDEF", True, DiskKind.CHECKPOINTS_STORE),
        (b"0123456789abcdef0", True, DiskKind.CHECKPOINTS_STORE),
    ],
)
def test_kinds_of_entries_of_checkpoints(name: bytes, is_folder: bool, kind: DiskKind) -> None:
    assert paths.classify_checkpoint(name, is_folder) is kind
