"""A user plugin that runs agents in a thread of whatever Hermes process loads it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tests.real.cli import gateway
from tests.real.hermes import Hermes

_NAME = "embedder"
_CODE = """
import threading
from tests.real.inside.embed import serve

def register(context):
    def run():
        with open({requests!r}) as requests, open({answers!r}, "w") as answers:
            serve(requests, answers)
    threading.Thread(target=run, daemon=True).start()
"""


class PluginThread:
    """The other end of `inside/embed.py`, in a thread of another process."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers
        self.pid: int = json.loads(answers.readline())

    def ask(self, do: str, **arguments: Any) -> Any:
        self._requests.write(json.dumps({"do": do, **arguments}) + "\n")
        self._requests.flush()
        return json.loads(self._answers.readline())


def install_plugin(home: Path) -> tuple[Path, Path]:
    """Put the plugin into a home that is configured already; return its two pipes."""
    folder = home / "plugins" / _NAME
    folder.mkdir(parents=True)
    requests, answers = home.parent / "plugin-requests", home.parent / "plugin-answers"
    for each in (requests, answers):
        os.mkfifo(each)
    (folder / "plugin.yaml").write_text(f"name: {_NAME}\nversion: 1.0.0\ndescription: a test\n")
    code = _CODE.format(requests=str(requests), answers=str(answers))
    (folder / "__init__.py").write_text(code)
    settings = json.loads((home / "config.yaml").read_text())  # JSON is YAML too
    settings["plugins"] = {"enabled": [_NAME]}
    (home / "config.yaml").write_text(json.dumps(settings))
    return requests, answers


@contextmanager
def plugin_in_gateway(hermes: Hermes, home: Path) -> Iterator[PluginThread]:
    requests, answers = install_plugin(home)
    with ExitStack() as stack:
        stack.enter_context(gateway(hermes, home))
        # In the order in which the thread opens them: each waits for the other end.
        writing = stack.enter_context(requests.open("w"))
        reading = stack.enter_context(answers.open())
        yield PluginThread(writing, reading)
