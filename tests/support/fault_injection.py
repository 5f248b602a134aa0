"""An interpreter with a fault at one moment of a run, in commands and workers alike.

It is a separate virtual environment. Its `.pth` file adds code to a module of ours when that is
loaded. A worker starts with `-I`, so neither environment variables nor a folder could do that.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import indent

from tests.real.hermes import REPOSITORY

_HOOK = """
import importlib.util, sys

class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _add(module)

        spec.loader.exec_module = exec_module
        return spec

def _add(module):
{code}

sys.meta_path.insert(0, _Finder())
"""


def faulty_python(folder: Path, module: str, code: str) -> Path:
    """Return an interpreter that runs `code`, which knows `module`, after that module is loaded."""
    place = folder / "python"
    packages = place / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin/python").symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (place / "pyvenv.cfg").write_text(f"home = {home}\n")
    # A .pth file found through another one is not read, so every folder is named here.
    libraries = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "ours.pth").write_text("\n".join([str(REPOSITORY), *libraries, ""]))
    (packages / "zz_fault.pth").write_text("import zz_fault\n")
    hook = _HOOK.format(module=module, code=indent(code, "    "))
    (packages / "zz_fault.py").write_text(hook)
    return place / "bin/python"


def run_with(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours with this interpreter until it ends."""
    return subprocess.run(
        [python, "-m", "exporter", *words],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
