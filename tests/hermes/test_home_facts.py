"""The facts that are read from a home's small files, and what a file that says nothing means."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from exporter.hermes.home_facts import (
    HomeConfig,
    cron_ticker_at,
    has_plugin_folders,
    hermes_version,
    prunes_after_days,
    read_config,
    read_host_config,
)
from tests.real.hermes import python_for


def read(home: Path, content: str | bytes) -> HomeConfig:
    data = content.encode() if isinstance(content, str) else content
    (home / "config.yaml").write_bytes(data)
    return read_config(str(home))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", HomeConfig()),
        ("model: some\n", HomeConfig()),
        ("session_reset: {max_messages: 40}\n", HomeConfig(marathon_limit=40)),
        ("gateway: {session_reset: {max_messages: 50}}\n", HomeConfig(marathon_limit=50)),
        ("session_reset: {max_messages: 0}\n", HomeConfig()),
        ("session_reset: {max_messages: true}\n", HomeConfig()),
        ("session_reset: {max_messages: many}\n", HomeConfig()),
        ("session_reset: [max_messages]\n", HomeConfig()),
        ("plugins: {enabled: [one]}\n", HomeConfig(enables_plugins=True)),
        ('"plugin\\x73": {enabled: [one]}\n', HomeConfig(enables_plugins=True)),
        ("plugins: {enabled: []}\n", HomeConfig()),
        ("plugins: [one]\n", HomeConfig()),
        ("checkpoints: {auto_prune: true}\n", HomeConfig()),
        ("sessions: {auto_prune: true", HomeConfig(prunes_itself=True)),
    ],
)
def test_the_limit_the_plugins_and_the_pruning_of_a_config(
    tmp_path: Path, content: str, expected: HomeConfig
) -> None:
    assert read(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("content", "days"),
    [
        ("sessions: {auto_prune: true}\n", 90),
        ("sessions: {auto_prune: 'false'}\n", 90),
        ("sessions: {auto_prune: true, retention_days: '7'}\n", 7),
        ("sessions: {auto_prune: true, retention_days: 7.9}\n", 7),
        ("sessions: {auto_prune: true, retention_days: 0}\n", 0),
        ("sessions: {auto_prune: true, retention_days: .nan}\n", 90),
        ("sessions: {auto_prune: 1, retention_days: some}\n", 90),
        ("sessions: {auto_prune: 1, retention_days: '${DAYS}'}\n", 0),
        ("sessions: {auto_prune: false, retention_days: 7}\n", None),
        ("a: &a [x]\nb: *a\nsessions: {auto_prune: true, retention_days: 7}\n", 7),
        ('a: &a [x]\nb: *a\nsessions:\n  auto_prune: true\n  "retention_days": "8"\n', 8),
        ("a: &a 5\nsessions: {auto_prune: true, retention_days: *a}\n", 0),
        ('a: &a [x]\nb: *a\nsessions: {auto_prune: true, "retention\\x5fdays": 5}\n', 0),
        ("a: &a [x]\nb: *a\nsessions: {auto_prune: true}\n", 90),
    ],
)
def test_after_how_long_hermes_deletes_ended_sessions(
    tmp_path: Path, content: str, days: int | None
) -> None:
    """Hermes reads aliases, and puts variables of its environment in."""
    assert prunes_after_days([read(tmp_path, content), HomeConfig()]) == days


def test_the_host_may_say_one_half_of_it_and_the_home_the_other(tmp_path: Path) -> None:
    """Hermes lays one over the other, key by key."""
    on = read(tmp_path, "sessions: {auto_prune: true}\n")
    days = read(tmp_path, "sessions: {retention_days: 7}\n")
    assert prunes_after_days([on, days]) == prunes_after_days([days, on]) == 7


def test_a_release_that_does_not_read_the_host_deletes_after_the_default(tmp_path: Path) -> None:
    on = read(tmp_path, "sessions: {auto_prune: true}\n")
    days = read(tmp_path, "sessions: {retention_days: 365}\n")
    assert prunes_after_days([on, days]) == 90


def test_the_limit_of_the_home_comes_before_that_of_its_gateway(tmp_path: Path) -> None:
    content = "session_reset: {max_messages: 40}\ngateway: {session_reset: {max_messages: 50}}\n"
    assert read(tmp_path, content).marathon_limit == 40


def test_a_home_without_a_config_enables_no_plugins(tmp_path: Path) -> None:
    assert read_config(str(tmp_path)) == HomeConfig()


@pytest.mark.parametrize(
    "content",
    [
        "plugins: {enabled: [one]",
        "a: &a [x]\nplugins: {enabled: *a}\n",  # nested aliases could expand to gigabytes
        b"plugins: \xff\n",
        "plugins: " + "[" * 10_000,
    ],
    ids=["invalid", "alias", "not UTF-8", "too deep"],
)
def test_a_config_that_mentions_plugins_and_cannot_be_parsed_may_enable_them(
    tmp_path: Path, content: str | bytes
) -> None:
    assert read(tmp_path, content) == HomeConfig(enables_plugins=True)


def test_an_invalid_config_that_does_not_mention_plugins_enables_none(tmp_path: Path) -> None:
    assert read(tmp_path, "session_reset: {max_messages: 40") == HomeConfig()


def test_a_config_that_cannot_be_read_may_enable_plugins_and_pruning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    found = HomeConfig(enables_plugins=True, prunes_itself=True, retention_days=0)
    assert read_config(str(tmp_path)) == found


_LOADED = """
import os, sys
sys.path.insert(0, os.environ["HERMES_FOLDER"])
from hermes_cli.plugins import _get_enabled_plugins
print(sorted(_get_enabled_plugins() or ()))
"""


@pytest.mark.parametrize("version", ["0.16.0", "0.17.0", "0.19.0"])
def test_the_host_may_enable_plugins_for_every_home(tmp_path: Path, version: str) -> None:
    """By a file of the administrator's that no home has; asked of Hermes itself."""
    hermes = python_for(version)
    host, home = tmp_path / "host", tmp_path / "home"
    host.mkdir()
    home.mkdir()
    (host / "config.yaml").write_text("plugins: {enabled: [one]}\n")
    environment = {
        **hermes.environment(home),
        "HERMES_MANAGED_DIR": str(host),
        "HERMES_FOLDER": str(hermes.folder),
    }
    done = subprocess.run(
        [hermes.python, "-c", _LOADED], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ("['one']" if hermes.at_least("0.17.0") else "[]")
    assert read_host_config(str(host / "config.yaml")).enables_plugins
    assert read_host_config(str(host / "none.yaml")) == HomeConfig()


@pytest.mark.parametrize("folder", ["plugins", "hooks"])
def test_each_plugin_or_hook_is_a_folder(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "readme.md").touch()
    (tmp_path / folder / ".git").mkdir()
    (tmp_path / folder / "__pycache__").mkdir()
    assert not has_plugin_folders(str(tmp_path))
    (tmp_path / folder / "one").mkdir()
    assert has_plugin_folders(str(tmp_path))


def test_a_plugin_folder_that_cannot_be_listed_may_hold_plugins(tmp_path: Path) -> None:
    assert not has_plugin_folders(str(tmp_path))
    (tmp_path / "plugins").touch()
    assert has_plugin_folders(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"ver": "0.19.1"}', "0.19.1"),
        ('{"ver": "2026.1.2rc1"}', "2026.1.2rc1"),
        ('{"ver": "main"}', None),
        ('{"ver": "1.0\\nup 1"}', None),
        ('{"ver": 19}', None),
        ('["0.19.1"]', None),
        ("{", None),
    ],
)
def test_only_what_looks_like_a_version_is_one(
    tmp_path: Path, content: str, expected: str | None
) -> None:
    assert hermes_version(str(tmp_path)) is None
    (tmp_path / ".update_check").write_text(content)
    assert hermes_version(str(tmp_path)) == expected


def test_when_the_cron_ticker_last_ran(tmp_path: Path) -> None:
    assert cron_ticker_at(str(tmp_path)) is None
    (tmp_path / "cron").mkdir()
    (tmp_path / "cron" / "ticker_heartbeat").write_text("1700000000.5\n")
    assert cron_ticker_at(str(tmp_path)) == 1700000000.5
