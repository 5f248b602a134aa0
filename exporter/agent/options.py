"""The command line's options, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field

from exporter.config.paths import default_state_dir

DEFAULT_PORT = 10749
"""9100 to 9999 are taken by other exporters, and 9749 by a tool beside coding agents."""
DEFAULT_LISTEN_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_TELEMETRY_PATH = "/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of all commands; an option that a command does not have keeps its default."""

    config_file: str | None = None
    looks_for_config: bool = False
    """If no configuration is named, read the system's: at the start and at each reload."""
    config_note: str = ""
    """Which configuration a command uses without an agent, if a person should know."""
    homes: tuple[str, ...] = ()
    """Absolute paths of homes named on the command line; if none, those of the configuration."""
    state_dir: str = field(default_factory=default_state_dir)
    disabled_collectors: frozenset[str] = frozenset()
    log_level: str = "info"
    log_format: str = "logfmt"
    agent_socket: str | None = None
    """Of `serve`: where it listens; of a command: the agent to ask. None: the usual places."""
    no_agent: bool = False
    fresh: bool = False
    names_own_files: bool = False
    """A configuration or a state directory was named: an agent with others would answer wrongly."""
    listen_addresses: tuple[str, ...] = (DEFAULT_LISTEN_ADDRESS,)
    web_config_file: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    telemetry_path: str = DEFAULT_TELEMETRY_PATH
    enable_lifecycle: bool = False
