"""How the settings table is written: each field of a dataclass is one key, with its unit, default
and help beside it. The parser, the sample file and the reference page all read the same fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from exporter.config.units import Unit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A key with one value. Without a default it may be left out, unless it is required."""

    unit: Unit[Any]
    default: str | None
    about: str = ""
    required: bool = False

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
    """A key with keys of its own."""

    kind: Callable[..., Any]
    entries: Mapping[str, Entry]
    about: str = ""
    noun: str = "key"
    """What its keys are called in an error line."""
    check: Callable[[Any], bool] | None = None
    """Whether the values fit each other; `check_rule` says what they have to do."""
    check_rule: str = ""
    checked: tuple[str, ...] = ()
    """The keys it is about: of one that is not given, an error line says what it is then."""
    inline: bool = False
    """Short enough to be written on one line: `{high: 2GiB, low: 1.5GiB}`."""
    can_be_off: bool = False
    """Whether `off` may stand in place of its keys; its attribute `off` is then true."""


@dataclass(frozen=True, slots=True)
class SectionsByName:
    """A key whose keys are names the user chooses, each with the same section."""

    name: Unit[str]
    section: Section
    about: str


@dataclass(frozen=True, slots=True)
class SectionList:
    """A key with a list of sections, which may override some of their neighbours' keys."""

    section: Section
    inherits: tuple[str, ...]
    unique: tuple[str, ...]
    """Attributes of which no two sections may have the same value."""
    about: str


Spec = Leaf | ListOf | Section | SectionsByName | SectionList


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a section: the attribute that holds it and what it may be."""

    attribute: str
    spec: Spec


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings(kind: type[T]) -> type[T]:
    """Make a frozen dataclass of a class whose fields are settings."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)


def setting(unit: Unit[T], default: str, about: str) -> T:
    """A key with a default."""
    leaf = Leaf(unit, default, about)
    return _field(leaf, unit.parse(default))


def optional(unit: Unit[T], about: str) -> T | None:
    """A key that may be left out."""
    default: T | None = None
    return _field(Leaf(unit, None, about), default)


def required(unit: Unit[T], about: str, empty: T) -> T:
    """A key that must be given; `empty` only stands in until it is read."""
    return _field(Leaf(unit, None, about, required=True), empty)


def list_of(unit: Unit[T], default: tuple[str, ...], about: str) -> tuple[T, ...]:
    """A list; what is given replaces the default."""
    return _field(ListOf(unit, default, about), tuple(unit.parse(text) for text in default))


def nested(kind: type[T], about: str, noun: str = "key") -> T:
    """A section whose keys are the fields of `kind`."""
    section = dataclasses.replace(section_of(kind), about=about, noun=noun)
    return _field(section, kind())


def nested_with(
    kind: Callable[..., T],
    about: str,
    leaves: Mapping[str, Leaf],
    check: Callable[[T], bool] | None = None,
    check_rule: str = "",
    checked: tuple[str, ...] = (),
    can_be_off: bool = False,
) -> T:
    """A section of the same kind as others, with units and defaults of its own."""
    entries = {key_of(name): Entry(name, leaf) for name, leaf in leaves.items()}
    section = Section(
        kind,
        entries,
        about,
        check=check,
        check_rule=check_rule,
        checked=checked,
        inline=True,
        can_be_off=can_be_off,
    )
    return _field(section, kind(**{name: leaf.value() for name, leaf in leaves.items()}))


def per_name(name: Unit[str], kind: type[T], about: str, noun: str = "key") -> Mapping[str, T]:
    """Sections under names the user chooses; none by default."""
    empty: Mapping[str, T] = {}
    spec = SectionsByName(name, dataclasses.replace(section_of(kind), noun=noun), about)
    return dataclasses.field(default_factory=lambda: empty, metadata={"spec": spec})


def section_list(
    kind: type[T], inherits: tuple[str, ...], unique: tuple[str, ...], about: str
) -> tuple[T, ...]:
    """A list of sections; each starts from the surrounding section's values of `inherits`."""
    return _field(SectionList(section_of(kind), inherits, unique, about), ())


def section_of(kind: type) -> Section:
    """The section that a settings class describes."""
    entries = {
        key_of(field.name): Entry(field.name, field.metadata["spec"])
        for field in dataclasses.fields(kind)
    }
    return Section(kind, entries)


def key_of(attribute: str) -> str:
    """The key in the file: attributes name their unit, the file writes it with the value."""
    return attribute.removesuffix("_seconds")


def _field(spec: Spec, default: T) -> T:
    return dataclasses.field(default=default, metadata={"spec": spec})
