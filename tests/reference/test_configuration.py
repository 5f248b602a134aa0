"""The reference page and the sample file in it follow the settings table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from exporter.config.load import load
from exporter.config.settings import Settings
from exporter.config.table import Section, section_of
from exporter.reference import configuration
from tests.real.hermes import REPOSITORY

DOCS = REPOSITORY / "docs" / "configuration.md"


def test_the_reference_page_is_up_to_date() -> None:
    assert DOCS.read_text() == configuration.page(), "run `make docs`"


def test_the_sample_file_loads_and_holds_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "sample.yaml"
    file.write_text(configuration.sample())
    assert load(str(file)) == Settings()


def test_the_commented_examples_load_too(tmp_path: Path) -> None:
    file = tmp_path / "sample.yaml"
    file.write_text(
        "".join(
            line.replace("# ", "", 1) if line.lstrip().startswith("# ") else line
            for line in configuration.sample().splitlines(keepends=True)
        )
    )
    settings = load(str(file))
    assert settings.homes[0].prune.trash.keep_seconds == 7 * 86400
    assert settings.prune.policies_for("cron").old_sessions.older_than_seconds == 14 * 86400


def test_every_field_of_every_section_is_a_key_with_help() -> None:
    def check(section: Section) -> None:
        for key, entry in section.entries.items():
            assert entry.spec.about, f"{section.kind}: {key}"
            if isinstance(entry.spec, Section):
                check(entry.spec)

    root = section_of(Settings)
    assert set(root.entries) == {field.name for field in dataclasses.fields(Settings)}
    check(root)
