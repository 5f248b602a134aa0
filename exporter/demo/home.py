"""A small invented home for `hermes-exporter demo`: everything the agent can show, in a second.

It has the shape that homes in the field have: most sessions are empty or short, three in ten were
never ended, one marathon has been failing at the same tool for a while, chats are routed though
their gateway is dead, and checkpoints outlive their projects. Every policy of the pruner finds
something; what only an agent that watched for days could know is in the state directory (`state`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from random import Random

from exporter.demo import checkpoints, files
from exporter.demo.conversation import Prose, Story, tell
from exporter.demo.database import Row, insert, leave_wal, new_state, write_kanban
from exporter.demo.population import CRON_JOBS, Shape, outlines
from exporter.demo.state import ORPHAN_ENDING

_DAY = 86400.0
_HOME = Shape(sessions=400, empty=143, short=269, long=7, longest=412, messages=4_200, open=116)
_PROFILE = Shape(sessions=60, empty=21, short=40, long=2, longest=218, messages=800, open=17)
_TRANSCRIPTS_FROM_MESSAGES = 20
_DAYS = 120
"""Long enough for some sessions to be older than `old_sessions` wants them."""
_ORPHANS = 4
_WAL_BYTES = 3 << 20
_CONFIG = """model: {default: example/orchard-large, provider: custom}
checkpoints: {enabled: true}
"""


def make(directory: str, *, now: float) -> str:
    """Make a home below `directory`, an empty one of the caller's, and return the home's path.

    The same moment gives the same sessions. Nothing of it is true.
    """
    rng = Random(1)  # noqa: S311 - invented text, not a secret
    home = os.path.join(directory, ".hermes")
    _make_home(home, _HOME, now, rng)
    _make_home(home + "/profiles/work", _PROFILE, now, rng)
    _make_checkpoints(home, directory, now, rng)
    leave_wal(home + "/state.db", _WAL_BYTES)  # its gateway was killed
    files.write_dead_gateway(home, started_at=now - 2 * _DAY, last_seen_at=now - 3 * 3600)
    files.write_cron(home, jobs=CRON_JOBS, runs=6, last_tick_at=now - 3 * 3600)
    write_kanban(home + "/kanban.db", _tasks(now))
    return home


def _make_home(home: str, shape: Shape, now: float, rng: Random) -> None:
    os.makedirs(home, mode=0o700)
    sessions_dir = home + "/sessions"
    os.mkdir(sessions_dir)
    prose = Prose(rng, vocabulary=400, length=60_000)
    with new_state(home + "/state.db") as database:
        stories = list(_stories(shape, prose, now, rng))
        for story in stories:
            story.insert_into(database)
        routed = files.routes(sessions_dir, stories)
        insert(database, "gateway_routing", routed)
    files.write_routing_mirror(sessions_dir, routed, now)
    _write_transcripts(sessions_dir, stories, rng)
    _write_orphans(sessions_dir, stories, now)
    files.write_logs(home, lines=400, last_at=now - 3 * 3600)
    with open(home + "/config.yaml", "w", encoding="utf-8") as config:
        config.write(_CONFIG)


def _stories(shape: Shape, prose: Prose, now: float, rng: Random) -> Iterator[Story]:
    for outline in outlines(shape, now=now, days=_DAYS, rng=rng):
        yield tell(outline, prose=prose, rng=rng, message_size=120, prompt_size=1_500)


def _write_transcripts(sessions_dir: str, stories: list[Story], rng: Random) -> None:
    spoken = [story for story in stories if len(story.messages) >= _TRANSCRIPTS_FROM_MESSAGES]
    for story in spoken:
        write = files.write_journal if story.session["session_key"] else files.write_snapshot
        write(sessions_dir, story)
    for story in rng.sample(spoken, min(8, len(spoken))):
        files.write_request_dump(sessions_dir, story)


def _write_orphans(sessions_dir: str, stories: list[Story], now: float) -> None:
    """Transcripts whose sessions have been deleted: the database has no row of them."""
    models = [story for story in stories if story.messages and story.last_at < now - 3 * _DAY]
    for number, story in enumerate(models[:_ORPHANS]):
        begun = str(story.session["id"]).rpartition("_")[0]
        session = {**story.session, "id": f"{begun}_{ORPHAN_ENDING}{number}"}
        files.write_snapshot(sessions_dir, story._replace(session=session))


def _make_checkpoints(home: str, directory: str, now: float, rng: Random) -> None:
    """Projects that are worked on, some whose folder is gone, some not touched for long."""
    base = home + "/checkpoints"
    prose = Prose(rng, vocabulary=400, length=20_000)
    blobs = [checkpoints.blob(prose.passage(rng.randint(200, 4_000)).encode()) for _ in range(60)]
    days_ago = {"ant": 1, "bee": 3, "cat": 40, "dog": 60, "gone-elk": 5, "gone-fox": 45}
    workdirs = {f"{directory}/projects/{name}": now - age * _DAY for name, age in days_ago.items()}
    for workdir in workdirs:
        if "/gone-" not in workdir:
            os.makedirs(workdir)
    archive = base + "/legacy-20250101-000000"
    for place, chosen in ((base, list(workdirs)), (archive, list(workdirs)[:2])):
        for workdir in chosen:
            checkpoints.write_legacy(
                place, workdir, blobs=blobs, objects=40, when=workdirs[workdir], rng=rng
            )
    checkpoints.write_store(base, workdirs, blobs=blobs, snapshots_each=5, rng=rng)


def _tasks(now: float) -> list[Row]:
    moment = int(now)
    done = {"created_at": moment - 90_000, "started_at": moment - 80_000}
    killed = {
        "created_at": moment - 20_000,
        "started_at": moment - 15_000,
        "claim_lock": f"{socket.gethostname()}:{files.NO_PID}",
        "worker_pid": files.NO_PID,
        "last_heartbeat_at": moment - 14_000,
    }
    return [
        {"id": "t_example1", "title": "Invented task, done", "status": "done"} | done,
        {"id": "t_example2", "title": "Invented task whose worker was killed", "status": "running"}
        | killed,
        {"id": "t_example3", "title": "Invented task, waiting", "status": "ready"}
        | {"created_at": moment - 4_000},
    ]
