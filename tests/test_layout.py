"""The rooms of `exporter/`: who may import whom, what lies at the root, and which test is whose.

CONTRIBUTING draws the same order; whoever adds a package adds it to both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.real.hermes import REPOSITORY

PACKAGES = (
    *("hermes", "evidence", "writing", "config", "discovery", "scan", "runs", "reaper", "pruner"),
    *("workers", "collectors", "web", "agent", "demo", "cli", "reference"),
)
"""In the order of imports: a package imports only the root and packages to its left."""
ROOT_MODULES = {"__init__", "__main__", "errors", "logs", "snapshot", "text"}


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted name and file of each module, `__init__` included."""
    for path in sorted((REPOSITORY / "exporter").rglob("*.py")):
        yield ".".join(path.relative_to(REPOSITORY).with_suffix("").parts), path


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
