"""docs/configuration.md, rendered from the settings table.

python -m exporter.reference.configuration > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from exporter.config.settings import Settings
from exporter.config.table import (
    Leaf,
    ListOf,
    Section,
    SectionList,
    SectionsByName,
    Spec,
    section_of,
)

_INTRODUCTION = """\
# Configuration

<!-- Made by `python -m exporter.reference.configuration`; change exporter/config/ instead. -->

Every command reads the file that `--config.file` names. Without that option, all commands except
`demo` read `/etc/hermes-exporter/config.yml` if it exists, and commands by hand say so on stderr:
they have the settings of the agent. The file is YAML, and every key is optional. Without a file the
defaults below hold: the agent watches every home it finds and changes nothing. `hermes-exporter
check --config.file FILE` lists the errors of a file, each with line, key and fix.

| value | is written as |
| --- | --- |
| duration | a number and `ms`, `s`, `m`, `h` or `d`: `50ms` `90s` `15m` `24h` `30d` |
| size | a number and `kB`, `MB`, `GB`, `TB` (powers of 1000) or `KiB`, `MiB`, `GiB`, `TiB` (1024) |
| percentage | a number and `%`: `10%` |
| count | a whole number without a unit |

Errors: 0 and negative numbers, unknown keys, keys given twice, a missing unit, and `low` at or
above `high`. YAML anchors, aliases and tags are refused.

`off` in place of its keys switches a policy off: `old_sessions: off`. It then takes nothing,
neither by itself nor with `prune --policy`. A later policy may still take the same items: with
`trivial_sessions: off`, `old_sessions` takes short sessions once they are old enough for it. Under
`sources:` or in a home, a policy can be off, or have other keys, for that source or home alone.

An entry of `homes` refines what is found: a home can be named, left out (`watch: false`) or put
into enforce mode while all others are still watched. If several entries select a home, only the
most specific one counts: its own path, then a pattern, then the path or pattern of the root home of
a profile, then its user. A pattern or a user selects among the homes that are found: those of this
host's users, and those that a process has open. Such a home must pass all checks of discovery. Only
a path without a pattern can name a home elsewhere.

On `SIGHUP` the agent reads the file again. If the file has an error, the old settings stay,
`hermes_exporter_config_last_reload_successful` is 0, and the log names each error.

## All keys with their defaults

```yaml
"""
_HOMES_SAMPLE = """\
# homes:                          # {about}
#   - path: ~/.hermes
#     name: default
#     reaper: {{mode: enforce}}     # a home may differ in any key of reaper and prune
#     prune: {{trash: {{keep: 7d}}}}
#   - path: /home/*/.hermes/profiles/scratch
#     watch: false                # all others are still found
#   - user: ci
#     prune: {{mode: enforce}}
"""
_SOURCES_SAMPLE = """\
  # sources:                      # {about}
  #   cron: {{old_sessions: {{older_than: 14d}}}}
"""
_COMMENT_COLUMNS = (33, 57)


def page() -> str:
    """The whole page."""
    return f"{_INTRODUCTION}{sample()}```\n{''.join(_tables(section_of(Settings)))}"


def sample() -> str:
    """A file that holds every key with its default."""
    return "".join(_sample(section_of(Settings), ""))


def _sample(section: Section, indent: str) -> Iterator[str]:
    for key, entry in section.entries.items():
        spec = entry.spec
        match spec:
            case SectionList():
                yield _HOMES_SAMPLE.format(about=spec.about)
            case SectionsByName():
                yield _SOURCES_SAMPLE.format(about=spec.about)
            case Section() if not spec.inline:
                yield _commented(f"{indent}{key}:", spec.about)
                yield from _sample(spec, indent + "  ")
            case _:
                yield _commented(f"{indent}{key}: {_default(spec)}", spec.about)


def _commented(text: str, about: str) -> str:
    column = _COMMENT_COLUMNS[len(text) > _COMMENT_COLUMNS[0]]
    return f"{text:<{column}} # {about}\n"


def _tables(root: Section) -> Iterator[str]:
    for key, entry in root.entries.items():
        spec = entry.spec
        section = spec.section if isinstance(spec, SectionList) else spec
        if isinstance(spec, Leaf):
            yield f"\n## {key}\n\n{_sentence(spec.about)} Default: `{spec.default}`.\n"
        if isinstance(section, Section):
            yield f"\n## {key}\n\n{_sentence(spec.about)}\n\n"
            yield "| key | value | default | meaning |\n| --- | --- | --- | --- |\n"
            yield from _rows(section, f"{key}[]." if isinstance(spec, SectionList) else f"{key}.")


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."


def _rows(section: Section, prefix: str) -> Iterator[str]:
    for key, entry in section.entries.items():
        spec = entry.spec
        if isinstance(spec, Section) and not spec.inline and not prefix.startswith("homes"):
            yield f"| `{prefix}{key}` | keys | | {spec.about} |\n"
            yield from _rows(spec, f"{prefix}{key}.")
        else:
            name = f"{prefix}{key}" + (".NAME" if isinstance(spec, SectionsByName) else "")
            default = _default(spec)
            shown = f"`{default}`" if default else ""
            yield f"| `{name}` | {_value(spec)} | {shown} | {spec.about} |\n"


def _default(spec: Spec) -> str:
    match spec:
        case Leaf():
            return '""' if spec.default == "" else spec.default or ""
        case ListOf():
            return f"[{', '.join(spec.default)}]"
        case Section() if spec.inline:
            values = {key: _default(entry.spec) for key, entry in spec.entries.items()}
            return f"{{{', '.join(f'{key}: {value}' for key, value in values.items() if value)}}}"
    return ""


def _value(spec: Spec) -> str:
    match spec:
        case Leaf():
            return spec.unit.name
        case ListOf():
            return f"list, each {spec.unit.name}"
        case Section() if spec.inline:
            keys = ", ".join(
                f"`{key}`: {_value(entry.spec)}" for key, entry in spec.entries.items()
            )
            return f"{keys}; or `off`" if spec.can_be_off else keys
        case SectionsByName():
            return "any of " + ", ".join(f"`{key}`" for key in spec.section.entries)
    return "keys"


if __name__ == "__main__":
    sys.stdout.write(page())
