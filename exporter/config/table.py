"""Declare the settings table.

Each field of a dataclass is one key, with its unit, default and help beside it. The parser, the
sample file and the reference page all read the same fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

from exporter.config.units import Unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A key with one value. If it is left out and has no default, its value is None."""

    unit: Unit[Any]
    default: str | None
    about: str = ""

    def value(self) -> Any:
        return None if self.default is None else self.unit.parse(self.default)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A key with a list of values."""

    unit: Unit[Any]
    default: tuple[str, ...]
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """A key that has keys of its own."""

    kind: Callable[..., Any]
    entries: Mapping[str, Entry]
    about: str = ""
    noun: str = "key"
    """The word for its keys in an error line."""
    check: Callable[[Any], str] | None = None
    """Returns what to change if the values contradict each other; empty if they do not."""
    checked: tuple[str, ...] = ()
    """The keys that `check` compares. If one is not given, the error line tells its origin."""
    inline: bool = False
    """Short enough for one line: `{high: 2GiB, low: 1.5GiB}`."""
    can_be_off: bool = False
    """True if `off` may replace its keys; then its attribute `off` is true."""
    retired: Mapping[str, str] = field(default_factory=dict)
    """Keys of earlier versions, each with what to write instead."""


@dataclass(frozen=True, slots=True)
class SectionsByName:
    """A key whose keys are names that the user chooses, each with the same section."""

    name: Unit[str]
    section: Section
    about: str


@dataclass(frozen=True, slots=True)
class ValuesByName:
    """A key whose keys are names that the user chooses, each with one value."""

    name: Unit[str]
    unit: Unit[Any]
    about: str


@dataclass(frozen=True, slots=True)
class SectionList:
    """A key with a list of sections. Each may override some keys of the surrounding section."""

    section: Section
    inherits: tuple[str, ...]
    unique: tuple[str, ...]
    """Attributes whose values must differ between the sections."""
    about: str


Spec = Leaf | ListOf | Section | SectionsByName | ValuesByName | SectionList


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a section: its attribute, and what its value may be."""

    attribute: str
    spec: Spec


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(kind: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose fields are settings."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def setting(unit: Unit[T], default: str, about: str) -> T:
    """Declare a key with a default."""
    leaf = Leaf(unit, default, about)
    return _field(leaf, unit.parse(default))


def optional(unit: Unit[T], about: str) -> T | None:
    """Declare a key that may be left out."""
    default: T | None = None
    return _field(Leaf(unit, None, about), default)


def list_of(unit: Unit[T], default: tuple[str, ...], about: str) -> tuple[T, ...]:
    """Declare a list. A list in the file replaces the default."""
    return _field(ListOf(unit, default, about), tuple(unit.parse(text) for text in default))


def nested(kind: type[T], about: str, noun: str = "key") -> T:
    """Declare a section whose keys are the fields of `kind`."""
    section = dataclasses.replace(section_of(kind), about=about, noun=noun)
    return _field(section, kind())


def nested_with(
    kind: Callable[..., T],
    about: str,
    leaves: Mapping[str, Leaf],
    check: Callable[[T], str] | None = None,
    checked: tuple[str, ...] = (),
    can_be_off: bool = False,
) -> T:
    """Declare a section with its own units and defaults; others may have the same `kind`."""
    entries = {key_of(name): Entry(name, leaf) for name, leaf in leaves.items()}
    section = Section(
        kind,
        entries,
        about,
        check=check,
        checked=checked,
        inline=True,
        can_be_off=can_be_off,
    )
    return _field(section, kind(**{name: leaf.value() for name, leaf in leaves.items()}))


def per_name(name: Unit[str], kind: type[T], about: str, noun: str = "key") -> Mapping[str, T]:
    """Declare sections with names that the user chooses; none by default."""
    empty: Mapping[str, T] = {}
    spec = SectionsByName(name, dataclasses.replace(section_of(kind), noun=noun), about)
    return dataclasses.field(default_factory=lambda: empty, metadata={"spec": spec})


def named_values(name: Unit[str], unit: Unit[T], about: str) -> Mapping[str, T]:
    """Declare values with names that the user chooses; none by default."""
    empty: Mapping[str, T] = {}
    spec = ValuesByName(name, unit, about)
    return dataclasses.field(default_factory=lambda: empty, metadata={"spec": spec})


def section_list(
    kind: type[T], inherits: tuple[str, ...], unique: tuple[str, ...], about: str
) -> tuple[T, ...]:
    """Declare a list of sections.

    Each starts with the surrounding section's values of `inherits`.
    """
    return _field(SectionList(section_of(kind), inherits, unique, about), ())


def section_of(kind: type) -> Section:
    """Return the section that a settings class describes.

    Its class variable `RETIRED`, if any, has the keys of earlier versions: each is refused with the
    line that says what to write instead. Its method `problem`, if any, is its check.
    """
    entries = {
        key_of(each.name): Entry(each.name, each.metadata["spec"])
        for each in dataclasses.fields(kind)
    }
    check = getattr(kind, "problem", None)
    return Section(kind, entries, check=check, retired=getattr(kind, "RETIRED", {}))


def key_of(attribute: str) -> str:
    """Return the key in the file.

    An attribute names its unit; the file writes it with the value.
    """
    return attribute.removesuffix("_seconds")


def _field(spec: Spec, default: T) -> T:
    return dataclasses.field(default=default, metadata={"spec": spec})
