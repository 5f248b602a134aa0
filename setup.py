"""Puts the files of `exporter.cli.shipped_files` into the wheel; all else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from exporter.cli.shipped_files import sources  # noqa: E402


class BuildWithFiles(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # a checkout is read where it is
        for name, path in sources(HERE):
            target = Path(self.build_lib, "exporter", "files", name)
            self.mkpath(str(target.parent))
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": BuildWithFiles})
