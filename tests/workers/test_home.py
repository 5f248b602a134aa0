"""What a worker keeps of a home with so many open sessions that not every scan judges them."""

from __future__ import annotations

from pathlib import Path

from exporter.reaper.models import Verdict
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from tests.support.home_scans import read_request, sql
from tests.support.small_homes import small_home

_MANY = 600
_BUSY = "20260101_000000_aaaaaa"


class _Watched:
    """The home, read with a clock that stands still unless a test moves it."""

    def __init__(self, folder: Path) -> None:
        self.home = small_home(folder / "home", sessions=_MANY)
        self.monotonic = 1000.0
        self._reader = WorkerHome(str(self.home), monotonic=lambda: self.monotonic)

    def counts(self) -> dict[Verdict, int]:
        *_, reply = self._reader.read(read_request(self.home, self.home.stat().st_uid))
        assert isinstance(reply, protocol.ScanReply)
        found: dict[Verdict, int] = {}
        for each in reply.verdicts:
            found[each.verdict] = found.get(each.verdict, 0) + each.sessions
        return found


def test_sessions_that_begin_or_end_are_counted_before_the_next_verdicts(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    assert watched.counts() == {Verdict.UNKNOWN: _MANY}
    sql(watched.home, f"UPDATE sessions SET ended_at = 1.0 WHERE id = '{_BUSY}';")
    sql(watched.home, "INSERT INTO sessions (id, source, started_at) VALUES ('new', 'cli', 1.0);")
    sql(watched.home, "INSERT INTO sessions (id, source, started_at) VALUES ('newer', 'cli', 1.0);")
    assert sum(watched.counts().values()) == _MANY + 1


def test_a_message_changes_the_counts_with_the_next_verdicts(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    assert watched.counts() == {Verdict.UNKNOWN: _MANY}
    said = "INSERT INTO messages (session_id, role, content, timestamp)"
    sql(watched.home, f"{said} VALUES ('{_BUSY}', 'user', 'hello', unixepoch());")
    assert watched.counts() == {Verdict.UNKNOWN: _MANY}
    watched.monotonic += 61
    assert watched.counts() == {Verdict.LIVE: 1, Verdict.UNKNOWN: _MANY - 1}
