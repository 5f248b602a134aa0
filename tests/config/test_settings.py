"""The settings of a correct file: defaults, overrides and inheritance."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from exporter.config.load import load
from exporter.config.mode import Mode
from exporter.config.prune import Policies
from exporter.config.settings import HomeSettings, Settings

DOCUMENTED = """
homes: [{path: ~/.hermes, name: default, profiles: true}]
scan:   {interval: 15s, full_interval: 6h}
reaper:
  {mode: observe, interval: 60s, min_idle: 10m, confirmations: 2, heartbeat_timeout: 90s,
   sources: [cli, tui, cron, subagent, curator], end_reason: reaped, max_per_minute: 60}
marathon: {max_messages: 200, near_ratio: 0.85}
prune:
  mode: observe
  interval: 5m
  cooldown: 15m
  plan_ttl: 10m
  caps: {items: 5000, bytes: 10GiB, share: 50%}
  emergency: 97%
  thresholds:
    transcripts:  {high: 2GiB,  low: 1.5GiB}
    checkpoints:  {high: 10GiB, low: 7GiB}
    state_db_payload: {high: 2GiB,  low: 1.5GiB}
    disk_used:    {high: 90%,   low: 85%, for: 5m}
    empty_sessions: {high: 1000, low: 100}
  policies:
    request_dumps:      {older_than: 7d}
    orphan_files:       {older_than: 1d}
    orphan_checkpoints: {older_than: 1d}
    stale_checkpoints:  {older_than: 14d}
    empty_sessions:     {older_than: 24h}
    trivial_sessions:   {older_than: 7d, max_messages: 5}
    old_sessions:       {older_than: 90d}
  sources: {cron: {old_sessions: {older_than: 14d}}}
  keep: {sources: [], titled: false, archived: true, newest: 20, undone: 30d}
  when: [pressure]
  trash: {keep: 72h, max_bytes: 5GiB, min_keep: 1h}
  upkeep: {vacuum: false, gc: false}
  lock_budget: 50ms
alerts: {runbook_base: "", dashboard_base: ""}
"""
POLICIES = [field.name for field in dataclasses.fields(Policies)]
DAY = 86400


@dataclasses.dataclass(frozen=True)
class At:
    """A home at this path."""

    path: str
    owner_name: str = ""
    named_as: str = ""


@pytest.fixture
def given(tmp_path: Path) -> Settings:
    """One host with two homes: `work` differs from the general settings, `plain` does not."""
    file = tmp_path / "exporter.yaml"
    file.write_text(
        """
homes:
  - path: /srv/work/.hermes
    name: work
    reaper: {mode: enforce, sources: []}
    prune:
      thresholds: {disk_used: {high: 80%, low: 70%}}
      policies: {old_sessions: {older_than: 30d}}
      sources: {cron: {trivial_sessions: {max_messages: 2}}}
  - path: /srv/plain/.hermes
reaper: {min_idle: 20m}
prune:
  policies: {trivial_sessions: {max_messages: 9}}
  sources: {cron: {empty_sessions: {older_than: 1h}}, tui: {old_sessions: {older_than: 1d}}}
"""
    )
    return load(str(file))


def test_the_documented_file_holds_the_defaults(tmp_path: Path) -> None:
    """The contract: writing out every documented key changes nothing except its two examples."""
    file = tmp_path / "exporter.yaml"
    file.write_text(DOCUMENTED)
    settings, default = load(str(file)), Settings()
    assert settings.scan == default.scan
    assert settings.reaper == default.reaper
    assert settings.marathon == default.marathon
    assert settings.alerts == default.alerts
    assert settings.prune.thresholds == default.prune.thresholds
    assert settings.prune.policies == default.prune.policies
    assert settings.prune.keep == default.prune.keep
    assert settings.prune.policies_for("cron").old_sessions.older_than_seconds == 14 * DAY
    assert settings.prune.policies_for("cli") == default.prune.policies


def test_out_of_the_box_nothing_is_enforced() -> None:
    assert Settings().reaper.mode is Mode.OBSERVE
    assert Settings().prune.mode is Mode.OBSERVE


def test_units_become_seconds_bytes_and_ratios() -> None:
    settings = Settings()
    assert settings.prune.lock_budget_seconds == 0.05
    assert settings.reaper.min_idle_seconds == 600
    assert settings.prune.thresholds.transcripts.low == 1.5 * 2**30
    assert settings.prune.thresholds.disk_used.for_seconds == 300
    assert settings.prune.emergency == 0.97


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500_000_000), ("2GiB", 2**31), ("1.5kB", 1500), ("7 B", 7)]
)
def test_sizes_in_powers_of_1000_and_1024(tmp_path: Path, text: str, size: int) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text(f"prune: {{trash: {{max_bytes: {text}}}}}")
    assert load(str(file)).prune.trash.max_bytes == size


def test_a_tilde_is_expanded_and_a_path_normalised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "exporter.yaml"
    file.write_text("homes: [{path: ~/.hermes/}, {path: /srv//x/../y}]")
    assert [home.path for home in load(str(file)).homes] == ["/home/ada/.hermes", "/srv/y"]


def test_a_home_overrides_key_by_key(given: Settings) -> None:
    work = given.for_home(At("/srv/work/.hermes"))
    assert work.reaper.mode is Mode.ENFORCE
    assert work.reaper.sources == ()
    assert work.reaper.min_idle_seconds == 1200, "what the home leaves out is the general setting"
    assert work.prune.thresholds.disk_used.high == 0.8
    assert work.prune.thresholds.disk_used.for_seconds == 300
    assert work.prune.policies.trivial_sessions.max_messages == 9


def test_the_settings_of_a_source_override_those_of_its_home(given: Settings) -> None:
    cron = given.for_home(At("/srv/work/.hermes")).prune.policies_for("cron")
    assert cron.empty_sessions.older_than_seconds == 3600, "from the general settings of cron"
    assert cron.trivial_sessions.max_messages == 2, "from the home's own settings of cron"
    assert cron.trivial_sessions.older_than_seconds == 7 * DAY
    assert cron.old_sessions.older_than_seconds == 30 * DAY, "from the home's policies"


@pytest.mark.parametrize("word", ["off", "false"])
def test_a_policy_is_switched_off_by_a_word_and_on_again_by_its_keys(
    tmp_path: Path, word: str
) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text(
        f"prune:\n"
        f"  policies: {{request_dumps: {word}, old_sessions: {word}, trivial_sessions: {word}}}\n"
        f"  sources: {{cron: {{old_sessions: {{older_than: 14d}}, empty_sessions: {word}}}}}\n"
        f"homes:\n"
        f"  - {{path: /a, prune: {{policies: {{request_dumps: {{older_than: 2d}}}}}}}}\n"
        f"  - {{path: /b, prune: {{policies: {{trivial_sessions: {{}}}}}}}}\n"
    )
    prune = load(str(file)).prune
    assert [name for name in POLICIES if prune.is_off(name)] == [
        "request_dumps",
        "trivial_sessions",
    ]
    assert prune.policies.trivial_sessions.max_messages == 5, "still what trivial means"
    assert prune.policies_for("cli").old_sessions.off
    cron = prune.policies_for("cron")
    assert (cron.old_sessions.off, cron.old_sessions.older_than_seconds) == (False, 14 * DAY)
    assert (cron.empty_sessions.off, prune.policies.empty_sessions.off) == (True, False)
    first, second = (load(str(file)).for_home(At(path)).prune for path in ("/a", "/b"))
    assert first.policies.request_dumps.older_than_seconds == 2 * DAY
    assert not first.is_off("request_dumps")
    assert second.is_off("trivial_sessions"), "who gives no key changes nothing"


@pytest.mark.parametrize("path", ["/srv/plain/.hermes", "/elsewhere", "/srv/work/.hermes/x"])
def test_other_homes_keep_the_general_settings(given: Settings, path: str) -> None:
    assert given.for_home(At(path)) == HomeSettings(given.reaper, given.prune)


def test_a_profile_has_the_settings_of_its_root(given: Settings) -> None:
    root = At("/srv/work/.hermes")
    assert given.for_home(At("/srv/work/.hermes/profiles/night")) == given.for_home(root)


SELECTED = """
homes:
  - {user: ada, reaper: {end_reason: by-user}}
  - {path: "/home/*/.hermes", reaper: {end_reason: by-pattern}}
  - {path: /home/bob/.hermes, reaper: {end_reason: by-path}}
  - {path: "/home/bob/.hermes/profiles/n*", reaper: {end_reason: by-pattern-of-profile}}
  - {path: /home/eve/.hermes, watch: false}
  - {path: /home/dan/.hermes, profiles: false}
  - {user: ci, watch: false}
"""


@pytest.mark.parametrize(
    ("home", "reason"),
    [
        (("/srv/ada/.hermes", "ada"), "by-user"),
        (("/home/ada/.hermes", "ada"), "by-pattern"),
        (("/home/ada/.hermes/profiles/x", "ada"), "by-pattern"),
        (("/home/a/b/.hermes", "zoe"), "reaped"),
        (("/home/bob/.hermes", "bob"), "by-path"),
        (("/home/bob/.hermes/profiles/day", "bob"), "by-path"),
        (("/home/bob/.hermes/profiles/night", "bob"), "by-pattern-of-profile"),
    ],
)
def test_the_closest_entry_has_the_settings_of_a_home(
    tmp_path: Path, home: tuple[str, str], reason: str
) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text(SELECTED)
    assert load(str(file)).for_home(At(*home)).reaper.end_reason == reason


@pytest.mark.parametrize("discover", ["true", "false"])
def test_entries_leave_homes_out_and_all_others_are_watched_if_found(
    tmp_path: Path, discover: str
) -> None:
    file = tmp_path / "exporter.yaml"
    file.write_text(f"discover: {discover}\n{SELECTED}")
    settings = load(str(file))
    wanted = {
        home: settings.wants((home[0],), home[1])
        for home in (
            ("/home/bob/.hermes", "bob"),
            ("/srv/ada/.hermes", "ada"),
            ("/home/eve/.hermes", "eve"),
            ("/home/eve/.hermes/profiles/x", "eve"),
            ("/home/dan/.hermes", "dan"),
            ("/home/dan/.hermes/profiles/x", "dan"),
            ("/srv/ci/.hermes", "ci"),
            ("/srv/unnamed/.hermes", "zoe"),
        )
    }
    assert [home[0] for home, is_wanted in wanted.items() if is_wanted] == [
        "/home/bob/.hermes",
        "/srv/ada/.hermes",
        "/home/dan/.hermes",
        *(["/srv/unnamed/.hermes"] if discover == "true" else []),
    ]
