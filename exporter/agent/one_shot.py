"""A `HostService` for a single command, without an agent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from exporter.agent.options import Options
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.service import HostService
from exporter.agent.state_store import StateStore, copy_memories, state_lock
from exporter.collectors.render import MetricsRenderer
from exporter.config.load import load, read
from exporter.config.settings import Settings
from exporter.errors import UsageError


@contextmanager
def host(options: Options) -> Iterator[HostService]:
    """This host. Nothing is remembered but what the state directory of an agent tells."""
    settings = load(options.config_file)
    with closing(StateStore.in_memory()) as store:
        copy_memories(options.state_dir, store)
        with _service_over(options, settings, store) as service:
            yield service


def metrics_text(options: Options) -> tuple[bytes, list[str]]:
    """The metrics in the text format, with counters that go on from the last time.

    And the homes that could not be read.
    """
    settings = load(options.config_file)
    metrics = MetricsRenderer(options.disabled_collectors, _ignore, of_process=False)
    with (
        state_lock(options.state_dir),
        closing(StateStore.open(options.state_dir)) as store,
        _service_over(options, settings, store, metrics.file_patterns) as service,
    ):
        view = service.metrics_view()
        return metrics.render(view).text, [home.label for home in view.homes if not home.up]


def check(options: Options) -> dict[str, Any]:
    """Is the configuration right, and what can be seen of each home?"""
    settings, problems = Settings(), list[str]()
    if options.config_file is not None:
        settings, problems = read(options.config_file)
    if problems:
        return {"ok": False, "config": problems, "homes": []}
    with closing(StateStore.in_memory()) as store:
        copy_memories(options.state_dir, store)
        with _service_over(options, settings, store) as service:
            return service.check()


@contextmanager
def _service_over(
    options: Options, settings: Settings, store: StateStore, file_patterns: Sequence[str] = ()
) -> Iterator[HostService]:
    for path in options.homes:
        if not os.path.isdir(path):
            raise UsageError(f"--home {path}: no such directory; give a HERMES_HOME directory")
    loop = ScanLoop(
        settings,
        store,
        named=options.homes,
        every_session=True,
        acting=False,
        file_patterns=file_patterns,
    )
    try:
        yield HostService(loop, options.state_dir)
    finally:
        loop.close()


def _ignore(name: str, error: Exception) -> None:
    """hermes_exporter_collector_success says it in the output itself."""
