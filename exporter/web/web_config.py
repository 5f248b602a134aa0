"""The web configuration file while the agent runs: read again as soon as a file has changed.

Each request and each handshake looks at the files (not at their content), so new certificates and
users count at once. A change never opens what was closed:

- If a file has a problem, every request is refused until the file is right. In the first second
  after a change the previous settings count: the file may be half written.
- If certificate and key do not match, the previous ones count for a minute: the second file may
  follow.
- If the file no longer asks for TLS, client certificates or users, nothing changes before a
  restart: a half-written file looks the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from exporter import logs
from exporter.config.web import WebConfig, read_web_config
from exporter.errors import ConfigError
from exporter.web.rate_limit import RateLimiter
from exporter.web.tls_context import CertificateError, TlsContexts

_SETTLE_SECONDS: Final = 1.0
_PAIR_SECONDS: Final = 60.0
_RACY_SECONDS: Final = 0.05
"""A file that was changed a moment ago may change again without a new time stamp."""

_log = logs.get("web")

_FileStamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The settings in use, with what was read from other files."""

    config: WebConfig
    tls: TlsContexts | None
    limiter: RateLimiter

    @property
    def users(self) -> Mapping[str, str]:
        return self.config.basic_auth_users

    @property
    def headers(self) -> Mapping[str, str]:
        return self.config.http_server_config.headers

    def demands(self) -> frozenset[str]:
        """Return what is asked of clients."""
        tls = self.config.tls_server_config
        asked = {
            "TLS": tls.enabled,
            "client certificates": tls.requires_client,
            "client_allowed_sans": bool(tls.client_allowed_sans),
            "basic_auth_users": bool(self.users),
        }
        return frozenset(name for name, wanted in asked.items() if wanted)


def load_web_config(path: str) -> LoadedConfig:
    """Read the file and those that it names; raise ConfigError with one line per problem."""
    config, problems = read_web_config(path)
    if problems:
        raise ConfigError("\n".join(problems))
    return _complete(path, config)


def _complete(path: str, config: WebConfig) -> LoadedConfig:
    tls = config.tls_server_config
    limit = config.rate_limit
    try:
        contexts = TlsContexts(tls) if tls.enabled else None
    except ConfigError as error:
        raise type(error)(f"{path}: {error}") from error
    return LoadedConfig(config, contexts, RateLimiter(limit.interval_seconds, limit.burst))


class WebConfigFile:
    """The file's newest settings."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        """Read the file; raise ConfigError if it cannot be used."""
        self.path = os.path.abspath(path)
        self._clock = clock
        self._loaded = load_web_config(self.path)
        self._stamps: Mapping[str, _FileStamp] | None = None
        self._good_stamps = self._look()
        self._gone_since: float | None = None
        self._refuse_from: float | None = None
        """When the problem of a changed file begins to count; None while all is well."""
        self.problem = ""
        """Why the file as it is now is not used; empty while all is well."""

    @property
    def speaks_tls(self) -> bool:
        return self._loaded.tls is not None

    def current(self) -> LoadedConfig | None:
        """Return the settings that count now; None if every client is to be refused."""
        stamps = self._look()
        if stamps != self._stamps:
            self._reload(stamps)
        if self._refuse_from is not None and self._clock() >= self._refuse_from:
            return None
        return self._loaded

    def _look(self) -> Mapping[str, _FileStamp]:
        tls = self._loaded.config.tls_server_config
        files = (self.path, tls.cert_file, tls.key_file, tls.client_ca_file)
        return {file: _stamp(file) for file in files if file}

    def _reload(self, stamps: Mapping[str, _FileStamp]) -> None:
        now = self._clock()
        newest = max((stamp[-1] / 1e9 for stamp in stamps.values() if len(stamp) > 1), default=0.0)
        self._stamps = stamps if now - newest > _RACY_SECONDS else None
        changed_at = min(newest, now)
        if any(len(stamp) == 1 for stamp in stamps.values()):  # it has no time: it is gone
            self._gone_since = changed_at = self._gone_since or now
        else:
            self._gone_since = None
        try:
            self._use(stamps)
        except _NeedsRestartError as error:
            self._refuse_from = None
            self._report(str(error))
        except ConfigError as error:
            patient = isinstance(error, CertificateError) and self._only_pair_changed(stamps)
            self._refuse_from = changed_at + (_PAIR_SECONDS if patient else _SETTLE_SECONDS)
            self._report(str(error))

    def _use(self, stamps: Mapping[str, _FileStamp]) -> None:
        if stamps == self._good_stamps and not self.problem:
            return
        loaded = load_web_config(self.path)
        self._check_demands(loaded)
        self._loaded = loaded
        self._good_stamps = self._look()
        if self._good_stamps != stamps:
            self._stamps = None  # it names other files now, or has changed again
        self._refuse_from = None
        self.problem = ""
        _log.info("web configuration reloaded", file=self.path)

    def _check_demands(self, loaded: LoadedConfig) -> None:
        before, after = self._loaded.demands(), loaded.demands()
        if missing := sorted(before - after):
            raise _NeedsRestartError(
                f"{self.path}: no longer asks for {' and '.join(missing)}; "
                "restart the agent if that is meant"
            )
        if "TLS" in after - before:
            raise _NeedsRestartError(f"{self.path}: asks for TLS now; restart the agent")

    def _only_pair_changed(self, stamps: Mapping[str, _FileStamp]) -> bool:
        """True if nothing has changed that decides who is let in."""
        tls = self._loaded.config.tls_server_config
        deciding = {self.path, tls.client_ca_file}
        return all(stamps.get(file) == self._good_stamps.get(file) for file in deciding)

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            _log.error("web configuration not reloaded", error=problem)
        self.problem = problem


class _NeedsRestartError(ConfigError):
    """The file is right, but a running agent does not go on with it."""


def _stamp(path: str) -> _FileStamp:
    """Return what changes with the file's content; its last item is the time of the change."""
    try:
        found = os.stat(path)
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
