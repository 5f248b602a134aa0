"""Make settings from a document and the settings table, or a list of problems.

All problems are reported at once, so that a file need not be fixed with one restart per error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from exporter.config.table import (
    Leaf,
    ListOf,
    Section,
    SectionList,
    SectionsByName,
    Spec,
    ValuesByName,
)
from exporter.config.yaml_tree import MappingNode, Node, ScalarNode, SequenceNode
from exporter.text import escape_control, quoted, shortened, suggestion

_OFF = ("off", "false")
"""Programs that write YAML turn `off` into `false`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem to fix: its line, its key, and the fix."""

    line: int
    key: str
    fix: str


@dataclass(slots=True)
class Builder:
    """Reads values from a document and collects its problems."""

    problems: list[Problem] = field(default_factory=list)

    def section(self, spec: Section, node: Node, base: Any, key: str) -> Any:
        """Return `base` with the document's changes. A section without a body changes nothing."""
        if isinstance(node, ScalarNode) and node.null:
            return base
        if spec.can_be_off and isinstance(node, ScalarNode) and node.text in _OFF:
            return dataclasses.replace(base, off=True)
        if not isinstance(node, MappingNode):
            or_off = " or the word off" if spec.can_be_off else ""
            self._wrong_type(node, key, f"keys such as '{next(iter(spec.entries))}:'{or_off}")
            return base
        before = len(self.problems)
        given = self._given(spec, node, key)
        # A section that is off elsewhere and has a key here is wanted here.
        changes: dict[str, Any] = {"off": False} if spec.can_be_off and given else {}
        # Lists of sections come last, because they start from the final values of their neighbours.
        for name in sorted(
            given, key=lambda name: isinstance(spec.entries[name].spec, SectionList)
        ):
            entry = spec.entries[name]
            current = dataclasses.replace(base, **changes)
            changes[entry.attribute] = self._value(
                entry.spec, given[name], current, getattr(base, entry.attribute), _join(key, name)
            )
        value = dataclasses.replace(base, **changes)
        if len(self.problems) == before:
            self._check(spec, node, value, key)
        return value

    def _given(self, spec: Section, node: MappingNode, key: str) -> dict[str, Node]:
        """Return the known keys in the file; unknown and repeated keys are problems."""
        given: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for name, value in node.entries:
            where = _join(key, name.text)
            if name.text in lines:
                self._add(name, where, f"given twice, first in line {lines[name.text]}")
            elif name.text in spec.entries:
                given[name.text] = value
            elif name.text in spec.retired:
                self._add(name, where, f"is no longer a key, {spec.retired[name.text]}")
            else:
                fix = suggestion(name.text, spec.entries)
                self._add(name, where, f"unknown {spec.noun}, {fix}")
            lines.setdefault(name.text, name.line)
        return given

    def _value(self, spec: Spec, node: Node, around: Any, base: Any, key: str) -> Any:
        match spec:
            case Leaf():
                return self._leaf(spec, node, base, key)
            case ListOf():
                return self._list(spec, node, base, key)
            case Section():
                return self.section(spec, node, base, key)
            case SectionsByName():
                return self._per_name(spec, node, base, key)
            case ValuesByName():
                return self._named_values(spec, node, base, key)
            case SectionList():
                return self._section_list(spec, node, around, key)

    def _leaf(self, spec: Leaf | ListOf, node: Node, base: Any, key: str) -> Any:
        if not isinstance(node, ScalarNode):
            self._wrong_type(node, key, "one value")
            return base
        if node.null:
            example = f", e.g. {spec.default}" if isinstance(spec, Leaf) and spec.default else ""
            self._add(node, key, f"has no value{example}")
            return base
        try:
            return spec.unit.parse(node.text)
        except ValueError as error:
            self._add(node, key, str(error))
            return base

    def _list(self, spec: ListOf, node: Node, base: Any, key: str) -> Any:
        if not isinstance(node, SequenceNode):
            self._wrong_type(node, key, "a list, e.g. [cli, cron]")
            return base
        return tuple(
            self._leaf(spec, item, None, f"{key}[{index}]") for index, item in enumerate(node.items)
        )

    def _per_name(self, spec: SectionsByName, node: Node, base: Any, key: str) -> Any:
        values = dict(base)
        for name, value, where in self._names(spec, node, key, "names with keys of their own"):
            start = base.get(name, spec.section.kind())
            values[name] = self.section(spec.section, value, start, where)
        return values

    def _named_values(self, spec: ValuesByName, node: Node, base: Any, key: str) -> Any:
        leaf = Leaf(spec.unit, None)
        values = dict(base)
        for name, value, where in self._names(spec, node, key, "names with a value each"):
            values[name] = self._leaf(leaf, value, None, where)
        return values

    def _names(
        self, spec: SectionsByName | ValuesByName, node: Node, key: str, expected: str
    ) -> Iterator[tuple[str, Node, str]]:
        """Yield the names of a mapping, each with its value and its key for an error line."""
        if isinstance(node, ScalarNode) and node.null:
            return
        if not isinstance(node, MappingNode):
            self._wrong_type(node, key, expected)
            return
        lines: dict[str, int] = {}
        for name, value in node.entries:
            where = _join(key, name.text)
            if name.text in lines:
                self._add(name, where, f"given twice, first in line {lines[name.text]}")
                continue
            lines[name.text] = name.line
            self._leaf(Leaf(spec.name, None), name, None, where)
            yield name.text, value, where

    def _section_list(self, spec: SectionList, node: Node, around: Any, key: str) -> Any:
        if isinstance(node, ScalarNode) and node.null:
            return ()
        if not isinstance(node, SequenceNode):
            self._wrong_type(node, key, "a list, e.g. [{path: ~/.hermes}]")
            return ()
        start = spec.section.kind(**{name: getattr(around, name) for name in spec.inherits})
        values: list[Any] = []
        for index, item in enumerate(node.items):
            where = f"{key}[{index}]"
            value = self.section(spec.section, item, start, where)
            for name in spec.unique:
                own = getattr(value, name)
                if own and own in (getattr(other, name) for other in values):
                    self._add(item, f"{where}.{name}", f"{quoted(own)} is given twice")
            values.append(value)
        return tuple(values)

    def _check(self, spec: Section, node: MappingNode, value: Any, key: str) -> None:
        fix = spec.check(value) if spec.check is not None else ""
        if fix:
            fix += "".join(_inherited_values(spec, node, value))
            self._add(node.entries[-1][0] if node.entries else node, key, fix)

    def _wrong_type(self, node: Node, key: str, expected: str) -> None:
        found = {MappingNode: "a mapping", SequenceNode: "a list"}.get(type(node))
        if isinstance(node, ScalarNode):
            found = "nothing" if node.null else quoted(node.text)
        self._add(node, key, f"expected {expected}, found {found}")

    def _add(self, node: Node, key: str, fix: str) -> None:
        self.problems.append(Problem(node.line, key, fix))


def _inherited_values(spec: Section, node: MappingNode, value: Any) -> Iterator[str]:
    """Yield where a checked value comes from that the section does not give itself."""
    given = {name.text for name, _ in node.entries}
    for name in spec.checked:
        entry = spec.entries[name]
        if name in given or not isinstance(entry.spec, Leaf) or entry.spec.default is None:
            continue
        default = entry.spec.default
        own = getattr(value, entry.attribute) == entry.spec.unit.parse(default)
        origin = f"the default {default}" if own else "what is set for all homes"
        yield f"; {name} is not given, so it is {origin}"


def _join(key: str, name: str) -> str:
    name = shortened(escape_control(name), 60)
    return f"{key}.{name}" if key else name
