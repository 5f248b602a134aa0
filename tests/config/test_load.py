"""Every mistake in the configuration, and the exact error line that says how to fix it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.config.load import load, read
from exporter.config.settings import Settings
from exporter.errors import ConfigError
from tests.real.hermes import REPOSITORY

BAD_VALUES = {
    # Keys
    "scan: {intervall: 15s}": "1: scan.intervall: unknown key, did you mean 'interval'?",
    "\n\nscan:\n  Interval: 15s": "4: scan.Interval: unknown key, did you mean 'interval'?",
    "scann: {}": "1: scann: unknown key, did you mean 'scan'?",
    "zzz: 1": (
        "1: zzz: unknown key, use homes, discover, scan, reaper, marathon, prune, limits or alerts"
    ),
    "scan:\n  interval: 15s\n  interval: 20s": "3: scan.interval: given twice, first in line 2",
    "scan: {}\nscan: {}": "2: scan: given twice, first in line 1",
    "prune: {thresholds: {disc_used: {high: 90%}}}": (
        "1: prune.thresholds.disc_used: unknown threshold, did you mean 'disk_used'?"
    ),
    "prune: {policies: {old_session: {older_than: 9d}}}": (
        "1: prune.policies.old_session: unknown policy, did you mean 'old_sessions'?"
    ),
    "prune: {policies: {old_sessions: {max_messages: 9}}}": (
        "1: prune.policies.old_sessions.max_messages: unknown key, use older_than"
    ),
    "prune: {policies: {old_sessions: never}}": (
        "1: prune.policies.old_sessions: expected keys such as 'older_than:' or the word off, "
        "found 'never'"
    ),
    "prune: {policies: {old_sessions: true}}": (
        "1: prune.policies.old_sessions: expected keys such as 'older_than:' or the word off, "
        "found 'true'"
    ),
    "prune: {policies: {old_sessions: {older_than: never}}}": (
        "1: prune.policies.old_sessions.older_than: "
        "to switch a policy off, write `off` in place of its keys"
    ),
    "prune: {thresholds: {state_db: {high: 2GiB, low: 1GiB}}}": (
        "1: prune.thresholds.state_db: is no longer a key, "
        "write 'state_db_payload:' with the same values"
    ),
    "prune: {thresholds: {state_db_payload: off}}": (
        "1: prune.thresholds.state_db_payload: expected keys such as 'high:', found 'off'"
    ),
    "prune: {sources: {cron: {request_dumps: {older_than: 1d}}}}": (
        "1: prune.sources.cron.request_dumps: unknown policy, "
        "use empty_sessions, trivial_sessions or old_sessions"
    ),
    "prune: {sources: {cron: {}, cron: {}}}": "1: prune.sources.cron: given twice, first in line 1",
    "prune: {sources: {'no way': {}}}": (
        "1: prune.sources.no way: expected a short word of letters and digits, found 'no way'"
    ),
    '"a\\eb": 1': (
        "1: a\\x1bb: unknown key, "
        "use homes, discover, scan, reaper, marathon, prune, limits or alerts"
    ),
    "? [a]\n: b": "1: a key must be a word",
    # Keys of earlier versions
    "reaper: {breaker: {ratio: 20%, count: 50}}": (
        "1: reaper.breaker: is no longer a key, slow start has replaced it: 10 sessions in the "
        "first hour, twice as many in each further one while nothing has to be reopened; remove it"
    ),
    "homes: [{path: /srv/hermes, reaper: {breaker: {count: 9}}}]": (
        "1: homes[0].reaper.breaker: is no longer a key, slow start has replaced it: 10 sessions "
        "in the first hour, twice as many in each further one while nothing has to be reopened; "
        "remove it"
    ),
    # Types
    "- a\n- b": "1: expected keys, e.g. 'scan:', at the top",
    "just words": "1: expected keys, e.g. 'scan:', at the top",
    "scan: 15s": "1: scan: expected keys such as 'interval:', found '15s'",
    "scan: [15s]": "1: scan: expected keys such as 'interval:', found a list",
    "scan: {interval: {seconds: 15}}": "1: scan.interval: expected one value, found a mapping",
    "scan: {interval: [15s]}": "1: scan.interval: expected one value, found a list",
    "scan: {interval: }": "1: scan.interval: has no value, e.g. 15s",
    "scan: {interval: null}": "1: scan.interval: has no value, e.g. 15s",
    "reaper: {sources: cli}": "1: reaper.sources: expected a list, e.g. [cli, cron], found 'cli'",
    "reaper: {sources: }": "1: reaper.sources: expected a list, e.g. [cli, cron], found nothing",
    "reaper: {sources: [cli, [tui]]}": ("1: reaper.sources[1]: expected one value, found a list"),
    "reaper: {sources: [cli, telegram]}": (
        "1: reaper.sources[1]: unknown source 'telegram', "
        "use cli, tui, cron, subagent, curator, webhook or api_server"
    ),
    "reaper: {end_reason: cli_close}": (
        "1: reaper.end_reason: Hermes writes 'cli_close' itself; choose another word, as `reaped`"
    ),
    "reaper: {end_reason: two words}": (
        "1: reaper.end_reason: expected a short word of letters and digits, found 'two words'"
    ),
    "prune: {keep: {titled: yes}}": ("1: prune.keep.titled: expected true or false, found 'yes'"),
    "prune: {sources: [cron]}": (
        "1: prune.sources: expected names with keys of their own, found a list"
    ),
    "reaper: {mode: enforced}": "1: reaper.mode: unknown mode 'enforced', did you mean 'enforce'?",
    "prune: {mode: off}": "1: prune.mode: unknown mode 'off', use observe or enforce",
    "alerts: {runbook_base: wiki}": (
        '1: alerts.runbook_base: expected an address that begins with https:// or http://, or ""'
    ),
    # Durations
    "scan: {interval: 15}": "1: scan.interval: durations need a unit, e.g. 15s or 15m",
    "scan: {interval: 15min}": "1: scan.interval: unknown unit 'min', use ms, s, m, h or d",
    "scan: {interval: 2w}": "1: scan.interval: unknown unit 'w', use ms, s, m, h or d",
    "scan: {interval: 15S}": "1: scan.interval: unknown unit 'S', did you mean 's'?",
    "scan: {interval: soon}": ("1: scan.interval: expected a duration, e.g. 15m, found 'soon'"),
    "scan: {interval: 1h30m}": ("1: scan.interval: expected a duration, e.g. 15m, found '1h30m'"),
    "scan: {interval: 0}": "1: scan.interval: must be greater than 0",
    "scan: {interval: 0s}": "1: scan.interval: must be greater than 0",
    "scan: {interval: -5s}": "1: scan.interval: must not be negative",
    "scan: {interval: 99999999d}": "1: scan.interval: must not be longer than 36500d",
    "prune: {lock_budget: 300ms}": "1: prune.lock_budget: must not be above 250ms",
    # Sizes
    "prune: {trash: {max_bytes: 5}}": "1: prune.trash.max_bytes: sizes need a unit, e.g. 500MB",
    "prune: {trash: {max_bytes: 5gb}}": (
        "1: prune.trash.max_bytes: unknown unit 'gb', did you mean 'GB'?"
    ),
    "prune: {trash: {max_bytes: 5G}}": (
        "1: prune.trash.max_bytes: unknown unit 'G', did you mean 'GB'?"
    ),
    "prune: {trash: {max_bytes: 5%}}": (
        "1: prune.trash.max_bytes: unknown unit '%', "
        "use B, kB, KB, MB, GB, TB, KiB, MiB, GiB or TiB"
    ),
    "prune: {trash: {max_bytes: 0GB}}": "1: prune.trash.max_bytes: must be greater than 0",
    "prune: {trash: {max_bytes: 0.1B}}": "1: prune.trash.max_bytes: must be at least 1B",
    "prune: {trash: {max_bytes: -1GB}}": "1: prune.trash.max_bytes: must not be negative",
    "prune: {trash: {max_bytes: 99999999TiB}}": (
        "1: prune.trash.max_bytes: must not be larger than 1048576TiB"
    ),
    "prune: {trash: {max_bytes: big}}": (
        "1: prune.trash.max_bytes: expected a size, e.g. 500MB, found 'big'"
    ),
    # Percentages and ratios
    "prune: {emergency: 97}": "1: prune.emergency: percentages need a unit, e.g. 97%",
    "prune: {emergency: 101%}": "1: prune.emergency: must not be above 100%",
    "prune: {emergency: 0%}": "1: prune.emergency: must be greater than 0",
    "prune: {emergency: 2GiB}": (
        "1: prune.emergency: expected a percentage, e.g. 10%, found unit 'GiB'"
    ),
    "prune: {emergency: full}": "1: prune.emergency: expected a percentage, e.g. 10%, found 'full'",
    "marathon: {near_ratio: 85%}": "1: marathon.near_ratio: ratios take no unit, e.g. 0.85",
    "marathon: {near_ratio: 1.5}": "1: marathon.near_ratio: must not be above 1",
    # Counts
    "reaper: {confirmations: 2s}": "1: reaper.confirmations: counts take no unit, e.g. 2",
    "reaper: {confirmations: 2.5}": "1: reaper.confirmations: must be a whole number",
    "reaper: {confirmations: 0}": "1: reaper.confirmations: must be greater than 0",
    "reaper: {confirmations: -1}": "1: reaper.confirmations: must not be negative",
    "reaper: {confirmations: two}": (
        "1: reaper.confirmations: expected a whole number, e.g. 100, found 'two'"
    ),
    "reaper: {confirmations: 1_000}": (
        "1: reaper.confirmations: expected a whole number, e.g. 100, found '1_000'"
    ),
    "prune: {trash: {early_purge: true}}": (
        "1: prune.trash.early_purge: is no longer a key, write 'min_keep: 1h', how old trash must "
        "be to be emptied under disk pressure"
    ),
    "prune: {caps: {items: 9999999999999}}": "1: prune.caps.items: must not be above 1000000000000",
    "prune: {keep: {newest: 0}}": "1: prune.keep.newest: must be greater than 0",
    # Thresholds: each in its own unit, low below high
    "prune:\n thresholds:\n  disk_used: {high: 2GiB}": (
        "3: prune.thresholds.disk_used.high: expected a percentage, e.g. 10%, found unit 'GiB'"
    ),
    "prune: {thresholds: {empty_sessions: {high: 10%}}}": (
        "1: prune.thresholds.empty_sessions.high: counts take no unit, e.g. 10"
    ),
    "prune: {thresholds: {transcripts: {low: 5}}}": (
        "1: prune.thresholds.transcripts.low: sizes need a unit, e.g. 500MB"
    ),
    "prune:\n thresholds:\n  transcripts:\n   high: 1GiB\n   low: 1GiB": (
        "5: prune.thresholds.transcripts: low must be below high, e.g. {high: 2GiB, low: 1.5GiB}"
    ),
    "prune: {thresholds: {disk_used: {high: 80%}}}": (
        "1: prune.thresholds.disk_used: low must be below high, e.g. {high: 90%, low: 85%}; "
        "low is not given, so it is the default 85%"
    ),
    "prune: {thresholds: {disk_used: {low: 95%}}}": (
        "1: prune.thresholds.disk_used: low must be below high, e.g. {high: 90%, low: 85%}; "
        "high is not given, so it is the default 90%"
    ),
    "prune: {thresholds: {disk_used: {low: 50%}}}\n"
    "homes: [{path: /a, prune: {thresholds: {disk_used: {high: 40%}}}}]": (
        "2: homes[0].prune.thresholds.disk_used: "
        "low must be below high, e.g. {high: 90%, low: 85%}; "
        "low is not given, so it is what is set for all homes"
    ),
    # Homes
    "homes: ~/.hermes": ("1: homes: expected a list, e.g. [{path: ~/.hermes}], found '~/.hermes'"),
    "homes: [~/.hermes]": "1: homes[0]: expected keys such as 'path:', found '~/.hermes'",
    "homes: [{name: a}]": "1: homes[0]: give either 'path:' or 'user:'",
    "homes: [{path: /a, user: ada}]": "1: homes[0]: give either 'path:' or 'user:'",
    "homes: [{user: ada, name: a}]": (
        "1: homes[0]: 'name:' is for one home: give its path without *, ? or ["
    ),
    "homes: [{path: /home/*/.hermes, name: a}]": (
        "1: homes[0]: 'name:' is for one home: give its path without *, ? or ["
    ),
    "homes: [{path: /home/**/.hermes}]": (
        "1: homes[0].path: ** is not supported: * stands for one name, e.g. /home/*/.hermes"
    ),
    "homes: [{user: ada}, {user: ada}]": "1: homes[1].user: 'ada' is given twice",
    "homes: [{path: ~}]": "1: homes[0].path: has no value",
    "homes: [{path: here}]": (
        "1: homes[0].path: expected an absolute path, e.g. ~/.hermes, found 'here'"
    ),
    "homes: [{path: ~nobody-of-that-name/x}]": (
        "1: homes[0].path: expected an absolute path, e.g. ~/.hermes, "
        "found '~nobody-of-that-name/x'"
    ),
    'homes: [{path: "/a\\0b"}]': (
        "1: homes[0].path: expected an absolute path, e.g. ~/.hermes, found '/a\\x00b'"
    ),
    'homes: [{path: /a, name: "a\\nb"}]': (
        "1: homes[0].name: expected 1 to 64 printable characters"
    ),
    "homes:\n- {path: /a}\n- {path: /b/../a/}": "3: homes[1].path: '/a' is given twice",
    "homes: [{path: /a, name: x}, {path: /b, name: x}]": "1: homes[1].name: 'x' is given twice",
    "homes: [{path: /a, reaper: {mod: observe}}]": (
        "1: homes[0].reaper.mod: unknown key, did you mean 'mode'?"
    ),
    "homes: [{path: /a, prune: {thresholds: {checkpoints: {high: 5GiB}}}}]": (
        "1: homes[0].prune.thresholds.checkpoints: "
        "low must be below high, e.g. {high: 10GiB, low: 7GiB}; "
        "low is not given, so it is the default 7GiB"
    ),
    # Not the YAML we accept
    "scan:\n\tinterval: 15s": ("2: not YAML: a tab where spaces are needed, indent with spaces"),
    "scan: {interval: 15s": "1: not YAML: expected ',' or '}', but got '<stream end>' "
    "while parsing a flow mapping",
    "scan: 'open": "1: not YAML: found unexpected end of stream while scanning a quoted scalar",
    "a: b: c": "1: not YAML: mapping values are not allowed here",
    "a: &x 1": "1: anchors (&name) are not allowed, write it out",
    "a: b\nc: *x": "2: aliases (*name) are not allowed, write it out",
    "a: !!python/object/apply:os.system [id]": "1: tags (!name) are not allowed",
    "scan: {}\n---\nscan: {}": "2: a second document; put everything into one",
    "[" * 50_000: "1: nested more than 12 levels deep",
    "a: \x01": "1: not YAML: character #x0001 in text",
}


def bomb(levels: int = 9) -> str:
    """The well-known YAML bomb: nine lines that expand to a thousand million words."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    return "\n".join(lines)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "exporter.yaml"


@pytest.mark.parametrize(("text", "expected"), BAD_VALUES.items(), ids=range(len(BAD_VALUES)))
def test_a_mistake_gives_one_line_with_file_line_key_and_fix(
    file: Path, text: str, expected: str
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(str(file))
    assert str(caught.value) == f"{file}:{expected}"
    assert caught.value.exit_status == 2


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(file: Path) -> None:
    file.write_text("prune: {emergency: 97}\nscan: {intervall: 15s}\nhomes: [{}]\n")
    assert read(str(file))[1] == [
        f"{file}:1: prune.emergency: percentages need a unit, e.g. 97%",
        f"{file}:2: scan.intervall: unknown key, did you mean 'interval'?",
        f"{file}:3: homes[0]: give either 'path:' or 'user:'",
    ]


def test_a_file_that_is_no_configuration_does_not_flood_the_terminal(file: Path) -> None:
    file.write_text("".join(f"key{number}: x\n" for number in range(5000)))
    lines = read(str(file))[1]
    assert len(lines) == 21
    assert lines[-1] == f"{file}: and 4980 more problems; is this the configuration?"


def test_a_yaml_bomb_is_refused_at_its_first_anchor(file: Path) -> None:
    file.write_text(bomb())
    assert read(str(file))[1] == [f"{file}:1: anchors (&name) are not allowed, write it out"]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "~", "scan:\nprune:\nhomes:\n"])
def test_an_empty_file_means_the_defaults(file: Path, text: str) -> None:
    file.write_text(text)
    assert load(str(file)) == Settings()


def test_no_file_means_the_defaults() -> None:
    assert load(None) == Settings()


def test_a_byte_order_mark_is_not_part_of_the_first_key(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfscan: {interval: 20s}\r\n")
    assert load(str(file)).scan.interval_seconds == 20


def test_a_missing_file_is_named(file: Path) -> None:
    expected = f"{file}: cannot be read: No such file or directory; check --config.file"
    assert read(str(file))[1] == [expected]


def test_a_directory_is_not_a_configuration(tmp_path: Path) -> None:
    expected = f"{tmp_path}: cannot be read: Is a directory; check --config.file"
    assert read(str(tmp_path))[1] == [expected]


def test_a_pipe_is_refused_without_waiting_for_it(file: Path) -> None:
    os.mkfifo(file)
    assert read(str(file))[1] == [f"{file}: is not a regular file; give a YAML file"]


def test_an_oversized_file_is_refused(file: Path) -> None:
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    assert read(str(file))[1] == [f"{file}: is larger than 1 MiB; is this the configuration?"]


def test_invalid_utf8_is_named_with_its_line(file: Path) -> None:
    file.write_bytes(b"scan: {}\nalerts: \xff\n")
    expected = f"{file}:2: not UTF-8: byte 0xff; save the file as UTF-8"
    assert read(str(file))[1] == [expected]


def test_a_file_name_cannot_forge_a_second_line(tmp_path: Path) -> None:
    file = tmp_path / "a\nb.yaml"
    file.write_text("x: 1")
    assert read(str(file))[1][0].startswith(f"{tmp_path}/a\\nb.yaml:1: x: unknown key")


def test_an_unreadable_file_is_named(file: Path) -> None:
    """Run as a user without rights, because root may read everything."""
    file.write_text("scan: {}")
    file.chmod(0)
    program = (
        "import os\n"
        "from exporter.config.load import read\n"
        "read('missing')  # imports all there is while it is still allowed to\n"
        "os.chdir(os.environ['WHERE'])\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setresuid(65534, 65534, 65534)\n"
        "print(*read('exporter.yaml')[1])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={"WHERE": str(file.parent)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "exporter.yaml: cannot be read: Permission denied; check --config.file"
    assert answer.stdout.strip() == expected
