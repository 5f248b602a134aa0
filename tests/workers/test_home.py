"""What a worker keeps of a home from scan to scan; not every scan judges very many sessions."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec import structs

from exporter.evidence.liveness import BootTime
from exporter.hermes.process_kinds import ProcessKind
from exporter.reaper.models import Verdict
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from tests.reaper.test_verdict import facts, holder
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


@pytest.mark.parametrize("writes", [True, False])
def test_a_subagent_that_was_compressed_keeps_its_parent_from_being_presumed(
    tmp_path: Path, writes: bool
) -> None:
    """It works on in a child of its ended row; the parent waits, and writes nothing."""
    home = small_home(tmp_path / "home", sessions=3, source="cron")
    parent, subagent, continuation = (f"20260101_{number:06}_aaaaaa" for number in range(3))
    sql(
        home,
        f"UPDATE sessions SET parent_session_id = '{parent}', ended_at = started_at + 3, "
        f"end_reason = 'compression' WHERE id = '{subagent}';"
        f"UPDATE sessions SET parent_session_id = '{subagent}' WHERE id = '{continuation}';",
    )
    passed = 0.0
    began = time.time()
    reader = WorkerHome(
        str(home),
        clock=lambda: began + passed,
        moment=lambda: BootTime("", passed, 1000.0 + passed),
    )
    request = structs.replace(
        read_request(home, home.stat().st_uid), facts=facts(holder(ProcessKind.GATEWAY))
    )
    verdicts = set()
    while passed < 3 * 3600:
        if writes:
            said = "INSERT INTO messages (session_id, role, content, timestamp)"
            sql(home, f"{said} VALUES ('{continuation}', 'assistant', 'so', {began + passed});")
        pages = [each for each in reader.read(request) if isinstance(each, protocol.SessionsPage)]
        verdicts |= {
            each.verdict for page in pages for each in page.items if each.session.id == parent
        }
        passed += 900.0
    assert (Verdict.DEAD in verdicts) is not writes


def test_the_newest_of_a_chain_of_compressions_is_live_while_a_chat_names_the_first(
    tmp_path: Path,
) -> None:
    """`hermes --resume FIRST` lands on the newest; all between have ended."""
    home = small_home(tmp_path / "home", sessions=5)
    chain = [f"20260101_{number:06}_aaaaaa" for number in range(5)]
    for parent, child in pairwise(chain[:4]):
        sql(
            home,
            f"UPDATE sessions SET ended_at = started_at, end_reason = 'compression' "
            f"WHERE id = '{parent}';"
            f"UPDATE sessions SET parent_session_id = '{parent}' WHERE id = '{child}';",
        )
    *_, newest, unrelated = chain
    reader = WorkerHome(str(home))
    seen = facts(holder(ProcessKind.CLI, mapped=(chain[0],)))
    request = structs.replace(read_request(home, home.stat().st_uid), facts=seen)
    (page,) = [each for each in reader.read(request) if isinstance(each, protocol.SessionsPage)]
    assert {each.session.id: each.verdict for each in page.items} == {
        newest: Verdict.LIVE,
        unrelated: Verdict.UNKNOWN,
    }
