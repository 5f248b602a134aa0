"""A YAML document that a user wrote, read safely.

The YAML parser takes long to load, so this module is loaded where there is a
document to read.
"""

from __future__ import annotations

from typing import Any

import yaml


class _NoAliasLoader(yaml.SafeLoader):
    """A loader that rejects aliases: nested aliases could expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)


def read_yaml(content: bytes) -> Any:
    """Return the document; raise ValueError if it is not one, or has aliases."""
    try:
        return yaml.load(content, _NoAliasLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError("no YAML document") from error
