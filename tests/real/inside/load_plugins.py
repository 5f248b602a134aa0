"""Which commands of the real `hermes` program load the user's plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_PLUGIN = "def register(context):\n    open({marker!r}, 'w').close()\n"
_CONFIGURATION = """
model: {default: fake-1, provider: custom, base_url: "http://127.0.0.1:9/v1", api_key: sk-fake}
plugins: {enabled: [marker]}
"""


def _install(home: Path, marker: Path) -> None:
    folder = home / "plugins" / "marker"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: marker\nversion: 1.0.0\ndescription: a test\n")
    (folder / "__init__.py").write_text(_PLUGIN.format(marker=str(marker)))
    (home / "config.yaml").write_text(_CONFIGURATION)


def _loads_plugin(command: list[str], marker: Path) -> bool:
    marker.unlink(missing_ok=True)
    subprocess.run(
        [sys.executable, "-m", "hermes_cli.main", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ,
        timeout=120,
    )
    return marker.exists()


def main() -> None:
    request = json.load(sys.stdin)
    home = Path(request["home"])
    marker = home.parent / "loaded"
    _install(home, marker)
    json.dump([_loads_plugin(command, marker) for command in request["commands"]], sys.stdout)


main()
