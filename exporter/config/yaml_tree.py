"""A YAML file as a tree that remembers its lines.

Values stay text. The settings table gives the type of each value, so YAML's own guesses (`off` is
false, `1:30` is ninety) cannot change a setting. Anything that could be abused or misread is
refused: aliases, tags, a second document, deep nesting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import yaml

MAX_DEPTH = 12
"""Deeper than any setting. The parser itself has no limit until memory ends."""


class DocumentError(Exception):
    """The file is not YAML that we accept; `line` is None for a problem of the whole file."""

    def __init__(self, line: int | None, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ScalarNode:
    line: int
    text: str
    null: bool
    """True if there is no value: `key:`, `~` or `null`."""


@dataclass(frozen=True, slots=True)
class SequenceNode:
    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping in the order of the file, with its duplicates; the reader handles duplicates."""

    line: int
    entries: tuple[tuple[ScalarNode, Node], ...]


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode


def parse(text: str) -> Node | None:
    """Return the tree of a YAML document; None for an empty one. Raise DocumentError."""
    events = _guarded(text)
    root: Node | None = None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise DocumentError(_line(event), "a second document; put everything into one")
        if isinstance(event, yaml.NodeEvent):
            root = _node(event, events, depth=1)
    return None if isinstance(root, ScalarNode) and root.null else root


def _guarded(text: str) -> Iterator[yaml.Event]:
    """Yield the parser's events; turn its errors into ours."""
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise DocumentError(_line(event), "aliases (*name) are not allowed, write it out")
            if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
                raise DocumentError(_line(event), "anchors (&name) are not allowed, write it out")
            yield event
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(line, f"not YAML: character #x{error.character:04x} in text") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None


def _node(event: yaml.NodeEvent, events: Iterator[yaml.Event], depth: int) -> Node:
    line = _line(event)
    if depth > MAX_DEPTH:
        raise DocumentError(line, f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
        raise DocumentError(line, "tags (!name) are not allowed")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.style is None
        return ScalarNode(line, event.value, null=plain and event.value in ("", "~", "null"))
    if isinstance(event, yaml.SequenceStartEvent):
        return SequenceNode(line, tuple(_children(events, yaml.SequenceEndEvent, depth)))
    children = _children(events, yaml.MappingEndEvent, depth)
    return MappingNode(line, tuple((_key(key), next(children)) for key in children))


def _children(events: Iterator[yaml.Event], end: type[yaml.Event], depth: int) -> Iterator[Node]:
    for event in events:
        if isinstance(event, end):
            return
        if isinstance(event, yaml.NodeEvent):
            yield _node(event, events, depth + 1)


def _key(node: Node) -> ScalarNode:
    if not isinstance(node, ScalarNode):
        raise DocumentError(node.line, "a key must be a word")
    return node


def _line(event: yaml.Event) -> int:
    return _line_of(event.start_mark)


def _line_of(mark: object) -> int:
    """Return the line number, counted from 1; 1 if there is no mark."""
    return int(getattr(mark, "line", 0)) + 1


def _syntax_error(error: yaml.MarkedYAMLError) -> DocumentError:
    line = _line_of(error.problem_mark)
    problem = error.problem or "cannot be parsed"
    if "'\\t'" in problem:
        return DocumentError(line, "not YAML: a tab where spaces are needed, indent with spaces")
    context = f" {error.context}" if error.context else ""
    return DocumentError(line, f"not YAML: {problem}{context}")
