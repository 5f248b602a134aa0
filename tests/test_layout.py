"""The rooms of `exporter/`: who may import whom, what lies at the root, and which test is whose.

CONTRIBUTING draws the same order; a new package is added to both.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.real.hermes import REPOSITORY

PACKAGES = (
    *("hermes", "evidence", "writing", "config", "discovery", "scan", "runs", "reaper", "pruner"),
    *("workers", "collectors", "web", "agent", "demo", "cli", "reference"),
)
"""In the order of imports: a package imports only the root and packages to its left."""
ROOT_MODULES = {"__init__", "__main__", "errors", "logs", "snapshot", "text"}
COVERED = re.compile(r"^- ([\w, ]+): (.+)$", flags=re.MULTILINE)
"""A line of a test package's docstring: modules without a test of their name, and their tests."""


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted name and file of each module, `__init__` included."""
    for path in sorted((REPOSITORY / "exporter").rglob("*.py")):
        yield ".".join(path.relative_to(REPOSITORY).with_suffix("").parts), path


def covered_elsewhere(tests: Path) -> list[tuple[str, str]]:
    """The modules that a test package lists, each with every test file that its line names."""
    file = tests / "__init__.py"
    docstring = (ast.get_docstring(ast.parse(file.read_text())) if file.exists() else None) or ""
    return [
        (module, test)
        for names, files in COVERED.findall(docstring)
        for module in names.split(", ")
        for test in files.split(", ")
    ]


def imports(path: Path) -> Iterator[str]:
    """Every module of ours that a file imports, at its top or later."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def rank(module: str) -> int:
    """The place of a module's package in the order; the root comes first."""
    parts = module.split(".")
    return PACKAGES.index(parts[1]) if len(parts) > 1 and parts[1] in PACKAGES else -1


def test_a_package_imports_only_packages_to_its_left() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in imports(path)
        if imported.split(".")[0] == "exporter" and rank(imported) > rank(module)
        if module != "exporter.__main__"  # `python -m exporter` is the command line
    ]
    assert not wrong


def test_only_six_modules_and_the_known_packages_lie_at_the_root() -> None:
    root = REPOSITORY / "exporter"
    assert {path.stem for path in root.glob("*.py")} == ROOT_MODULES
    folders = {path.name for path in root.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(PACKAGES)


def test_contributing_draws_the_packages_in_this_order() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    drawn = re.findall(r"^  (\w+)/ ", text, flags=re.MULTILINE)
    assert tuple(drawn) == PACKAGES


def test_every_test_that_a_page_names_exists() -> None:
    missing = [
        f"{page.name} names {name}"
        for page in (REPOSITORY / "docs").glob("*.md")
        for name in re.findall(r"`(tests/[\w./]+)`", page.read_text())
        if not (REPOSITORY / name).exists()
    ]
    assert not missing


def test_every_module_has_a_test_or_is_said_to_be_covered() -> None:
    listed: set[str] = set()
    missing: set[str] = set()
    for package in {path.parent for _, path in modules()}:
        tests = REPOSITORY / "tests" / package.relative_to(REPOSITORY / "exporter")
        for module, test in covered_elsewhere(tests):
            listed.add(f"{package.relative_to(REPOSITORY)}/{module}.py")
            assert (REPOSITORY / test).is_file(), f"{tests}/__init__.py names {test}"
        missing.update(
            str(path.relative_to(REPOSITORY))
            for path in package.glob("*.py")
            if path.stem not in ("__init__", "__main__")
            if not (tests / f"test_{path.name}").exists()
        )
    assert missing - listed == set(), (
        "exporter/a/b.py needs tests/a/test_b.py, or a line in tests/a/__init__.py: what covers it"
    )
    assert listed - missing == set(), "it has a test of its own name, or does not exist"


def test_no_public_type_has_the_name_of_another() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for module, path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(module)
    assert not {name: where for name, where in defined.items() if len(where) > 1}


UNPLAIN = re.compile(r"\b(nobody|somebody|anybody|whoever|whom|he|his|him)\b", re.IGNORECASE)
STORED_WORDS = {"nobody"}
"""Kinds of evidence that `sessions --json` has always printed."""


def test_sentences_say_who_does_what() -> None:
    """Docstrings, comments and messages name the caller, the process or the user."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()}"
        for _, path in modules()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for word in UNPLAIN.findall(line)
        if f'"{word}"' not in line or word not in STORED_WORDS
    ]
    assert not found
