"""A `HostService` for a single command, without an agent."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from exporter import logs
from exporter.agent.options import DEFAULT_LISTEN_ADDRESS, Options
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.service import HostService
from exporter.agent.state_file import state_lock
from exporter.agent.state_store import StateStore, copy_memories
from exporter.agent.visibility import runbook_advice
from exporter.config.load import load, read
from exporter.config.settings import Settings
from exporter.errors import ConfigError, UsageError, error_location
from exporter.workers.starter import Starter

log = logs.get("agent")


@contextmanager
def host(options: Options, starter: Starter | None = None) -> Iterator[HostService]:
    """Return a service for this host. It remembers only what an agent's state directory holds.

    `starter` is one that has begun to load what the workers need.
    """
    settings = load(options.config_file)
    with closing(StateStore.in_memory()) as store:
        copy_memories(options.state_dir, store)
        with _service(options, settings, store, starter=starter, counts_usage=False) as service:
            yield service


def metrics_text(options: Options) -> tuple[bytes, list[str]]:
    """Return the metrics as text, and the labels of the homes that could not be read.

    The counters continue from the last call.
    """
    from exporter.collectors.render import MetricsRenderer  # only this command needs collectors

    settings = load(options.config_file)
    metrics = MetricsRenderer(options.disabled_collectors, _collector_failed, of_process=False)
    with (
        state_lock(options.state_dir),
        closing(StateStore.open(options.state_dir)) as store,
        _service(options, settings, store, metrics.file_patterns) as service,
    ):
        view = service.metrics_view()
        return metrics.render(view).text, [home.label for home in view.homes if not home.up]


def check(options: Options) -> dict[str, Any]:
    """Return whether the configuration is right, and what can be seen of each home."""
    settings, problems = Settings(), list[str]()
    if options.config_file is not None:
        settings, problems = read(options.config_file)
    if options.web_config_file is not None:
        problems = [*problems, *_web_problems(options.web_config_file)]
    if problems:
        return {"ok": False, "config": problems, "homes": [], "advice": []}
    with closing(StateStore.in_memory()) as store:
        copy_memories(options.state_dir, store)
        with _service(options, settings, store, counts_usage=False) as service:
            report = service.check()
    named = options.listen_addresses
    addresses = () if named == (DEFAULT_LISTEN_ADDRESS,) else named
    report["advice"] += runbook_advice(settings, addresses)
    return report


def _web_problems(path: str) -> list[str]:
    from exporter.web.web_config import load_web_config  # TLS is loaded only where it is used

    try:
        load_web_config(path)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@contextmanager
def _service(
    options: Options,
    settings: Settings,
    store: StateStore,
    file_patterns: Sequence[str] = (),
    starter: Starter | None = None,
    *,
    counts_usage: bool = True,
) -> Iterator[HostService]:
    for path in options.homes:
        if not os.path.isdir(path):
            raise UsageError(f"--home {path}: no such directory; give a HERMES_HOME directory")
    loop = ScanLoop(
        settings,
        store,
        named=options.homes,
        starter=starter,
        every_session=True,
        acting=False,
        counts_usage=counts_usage,
        file_patterns=file_patterns,
    )
    try:
        yield HostService(loop, options.state_dir, fresh=options.fresh)
    finally:
        loop.close()


def _collector_failed(name: str, error: Exception) -> None:
    log.error("collector failed", collector=name, error=error_location(error))
