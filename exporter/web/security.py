"""Who is answered: the check of each request before it reaches the pages.

A request is refused for its Host (on a loopback listener), for a broken web configuration, for the
rate limit, and for a missing or wrong password, in this order.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Iterable, Mapping

import msgspec

from exporter.web.connection import Application
from exporter.web.hosts import AllowedHosts, names_of_this_host
from exporter.web.passwords import PasswordChecker, TooBusyError
from exporter.web.request import Request
from exporter.web.response import Response, message
from exporter.web.tls_context import TlsContexts
from exporter.web.web_config import LoadedConfig, WebConfigFile

_FOREIGN_HOST = "this host does not have the name that was asked for; --web.allowed-host adds it"
_BROKEN = "the web configuration file has a problem; see the log of hermes-exporter"


class WebSecurity:
    """The rules of all listeners; without a file there is neither TLS nor authentication."""

    def __init__(
        self,
        file: WebConfigFile | None = None,
        allowed_hosts: Iterable[str] = (),
        passwords: PasswordChecker | None = None,
    ) -> None:
        self.file = file
        self.allowed_hosts = AllowedHosts({*names_of_this_host(), *allowed_hosts})
        self.passwords = passwords or PasswordChecker()

    @property
    def speaks_tls(self) -> bool:
        """True if every listener speaks TLS; that stays as it was at the start."""
        return self.file is not None and self.file.speaks_tls

    @property
    def problem(self) -> str:
        """Why the web configuration file as it is now is not used; empty while all is well."""
        return "" if self.file is None else self.file.problem

    def tls_contexts(self) -> TlsContexts | None:
        """Return the contexts for a new client; None refuses it."""
        loaded = None if self.file is None else self.file.current()
        return None if loaded is None else loaded.tls

    def guard(self, application: Application, *, loopback: bool) -> Application:
        """Return the application behind these rules, for one listener."""
        return _Guarded(self, application, self.allowed_hosts if loopback else None)


class _Guarded:
    def __init__(
        self, security: WebSecurity, application: Application, hosts: AllowedHosts | None
    ) -> None:
        self._application = application
        self._hosts = hosts
        self._file = security.file
        self._passwords = security.passwords

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        if self._hosts is not None and not self._hosts.allows(request.headers.get("host", "")):
            return message(403, _FOREIGN_HOST)
        if self._file is None:
            return self._application.respond(request)
        loaded = self._file.current()
        if loaded is None:
            return message(500, _BROKEN)
        answer = self._limited(request, loaded)
        if isinstance(answer, Response):
            return _with_headers(answer, loaded.headers)
        return _later(answer, loaded.headers)

    def _limited(self, request: Request, loaded: LoadedConfig) -> Response | Awaitable[Response]:
        if not loaded.limiter.allows():
            return message(429, "too many requests", ("Retry-After", "1"))
        if not loaded.users:
            return self._application.respond(request)
        given = _credentials(request.headers.get("authorization", ""))
        if given is None:
            return _unauthorised()
        right = self._passwords.remembered(loaded.users, *given)
        if right is None:
            return self._check(request, loaded, *given)
        return self._application.respond(request) if right else _unauthorised()

    async def _check(
        self, request: Request, loaded: LoadedConfig, user: str, password: bytes
    ) -> Response:
        try:
            right = await self._passwords.check(loaded.users, user, password, request.client)
        except TooBusyError:
            return message(503, "too many passwords to check", ("Retry-After", "1"))
        if not right:
            return _unauthorised()
        answer = self._application.respond(request)
        return answer if isinstance(answer, Response) else await answer


async def _later(answer: Awaitable[Response], headers: Mapping[str, str]) -> Response:
    return _with_headers(await answer, headers)


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "replace"), password) if colon else None


def _unauthorised() -> Response:
    return message(401, "user and password needed", ("WWW-Authenticate", "Basic"))


def _with_headers(response: Response, headers: Mapping[str, str]) -> Response:
    """Set the headers of the file; a blank one leaves ours."""
    changes: dict[str, object] = {}
    added = dict(headers)
    added.pop("X-Content-Type-Options", "")  # its one value is what every response has
    if policy := added.pop("Content-Security-Policy", ""):
        changes["security_policy"] = policy
    if frames := added.pop("X-Frame-Options", ""):
        changes["frame_options"] = frames
    changes["headers"] = (
        *response.headers,
        *((name, text) for name, text in added.items() if text),
    )
    return msgspec.structs.replace(response, **changes) if headers else response
