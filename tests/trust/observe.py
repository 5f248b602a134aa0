"""What is in a home: rows, tokens of messages, files and trash, and the journal.

Read from copies of the files, so that looking changes nothing and takes no lock. Only for a process
that has none of these databases open.
"""

from __future__ import annotations

import gzip
import os
import re
import time
import zlib
from contextlib import suppress
from pathlib import Path

import apsw

from tests.trust.model import ActionRow, Observation, Row

TOKEN = re.compile(rb"tok[0-9a-f]{8}x")
_OURS = ".hermes-exporter"
_TRIES = 50
Content = tuple[bytes | None, ...]


def _states(file: Path, side: str) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for suffix in ("", side):
        try:
            status = os.stat(f"{file}{suffix}")
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except FileNotFoundError:
            found.append(None)
    return found


def _content(file: Path, side: str) -> Content:
    """A database and its side file as they are at one moment."""
    for _ in range(_TRIES):
        before = _states(file, side)
        found = tuple(_bytes(Path(f"{file}{suffix}")) for suffix in ("", side))
        if _states(file, side) == before:
            break
    return found


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None


class Observer:
    """Looks at homes again and again; what has not changed is not read again."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        scratch.mkdir(exist_ok=True)
        self._rows: dict[str, tuple[object, dict[str, Row], bytes]] = {}
        self._journals: dict[str, tuple[object, tuple[dict[tuple[str, int], ActionRow], bool]]] = {}
        self._tokens: dict[tuple[str, int, int, int], frozenset[str]] = {}

    def look(self, home: Path) -> Observation:
        """Look at a home; again if something moved meanwhile."""
        for _ in range(_TRIES):
            try:
                return self._look(home)
            except (FileNotFoundError, apsw.Error):
                time.sleep(0.02)
        return self._look(home)

    def _look(self, home: Path) -> Observation:
        database = _content(home / "state.db", "-wal")
        known = self._rows.get(str(home))
        if known is None or known[0] != database:
            self._copy(database, "-wal")
            rows = self._read_rows()
            # Closing the copy has written its WAL back.
            known = self._rows[str(home)] = (
                database,
                rows,
                _bytes(self._scratch / "copy.db") or b"",
            )
        actions, tripped = self._journal(home)
        trash = home / _OURS / "backups" / "trash"
        return Observation(
            rows=known[1],
            files={
                **self._tokens_below(home / "sessions", home),
                **self._tokens_below(home / "checkpoints", home),
            },
            trash=self._tokens_below(trash, trash) if trash.is_dir() else {},
            actions=actions,
            tripped=tripped,
            database=database,
            written_back=known[2],
        )

    def _copy(self, content: Content, side: str) -> None:
        """Make a database and its side file that can be opened."""
        copy = self._scratch / "copy.db"
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{copy}{suffix}").unlink(missing_ok=True)
        for suffix, part in zip(("", side), content, strict=True):
            if part is not None:
                Path(f"{copy}{suffix}").write_bytes(part)

    def _read_rows(self) -> dict[str, Row]:
        connection = apsw.Connection(str(self._scratch / "copy.db"))
        try:
            names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
            if not names:
                return {}
            archived = "archived" if "archived" in names else "0"
            tokens: dict[str, list[str]] = {}
            times: dict[str, list[float]] = {}
            roles: dict[str, str] = {}
            for session, content, moment, role in connection.execute(
                "SELECT session_id, CAST(content AS BLOB), timestamp, role "
                "FROM messages ORDER BY id"
            ):
                times.setdefault(session, []).append(moment)
                roles[session] = role
                # Hermes may have put two questions into one message.
                said = [each.decode() for each in TOKEN.findall(content or b"")]
                tokens.setdefault(session, []).extend(said)
            return {
                session: Row(
                    ended_at,
                    reason,
                    bool(put_away),
                    tuple(tokens.get(session, ())),
                    (began, *times.get(session, ())),
                    source,
                    roles.get(session) == "user",
                )
                for session, source, ended_at, reason, put_away, began in connection.execute(
                    f"SELECT id, source, ended_at, end_reason, {archived}, started_at FROM sessions"
                )
            }
        finally:
            connection.close()

    def _journal(self, home: Path) -> tuple[dict[tuple[str, int], ActionRow], bool]:
        file = home / _OURS / "journal.db"
        if not file.exists():
            return {}, False
        content = _content(file, "-journal")
        known = self._journals.get(str(home))
        if known is None or known[0] != content:
            self._copy(content, "-journal")
            known = self._journals[str(home)] = (content, self._read_journal())
        return known[1]

    def _read_journal(self) -> tuple[dict[tuple[str, int], ActionRow], bool]:
        connection = apsw.Connection(str(self._scratch / "copy.db"))
        try:
            found: dict[tuple[str, int], ActionRow] = {}
            with suppress(apsw.Error):  # it is new, or the test has damaged it
                _read_actions(connection, "ASC", found)
                return found, _is_tripped(connection)
            # The product need not have met the damage: it has noted its runs behind it.
            with suppress(apsw.Error):
                _read_actions(connection, "DESC", found)
            return found, _is_tripped(connection)
        finally:
            connection.close()

    def _tokens_below(self, folder: Path, home: Path) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for where, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(where, name)
                found[os.path.relpath(path, home)] = self._tokens_of(path)
        return found

    def _tokens_of(self, path: str) -> frozenset[str]:
        status = os.lstat(path)
        key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in self._tokens:
            content = Path(path).read_bytes()
            if content[:2] == b"\x1f\x8b":
                try:
                    content = gzip.decompress(content)
                except (OSError, EOFError, zlib.error):
                    content = b""
            self._tokens[key] = frozenset(each.decode() for each in TOKEN.findall(content))
        return self._tokens[key]


def _read_actions(
    connection: apsw.Connection, order: str, found: dict[tuple[str, int], ActionRow]
) -> None:
    """Add the actions of a journal, up to one that cannot be read."""
    for run, number, action, target, state, proof, at in connection.execute(
        "SELECT run, number, action, target, state, json_extract(after, '$.proof'), settled_at "
        f"FROM actions ORDER BY run {order}, number {order}"
    ):
        found[run, number] = ActionRow(run, action, target, state, proof, at)


def _is_tripped(connection: apsw.Connection) -> bool:
    try:
        return bool(list(connection.execute("SELECT 1 FROM breaker")))
    except apsw.Error:
        return False
