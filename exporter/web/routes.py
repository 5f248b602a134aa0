"""The paths that the agent serves.

Every path but `/-/reload` only reads what was published last. Nothing here can delete, reap or
touch a home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from exporter.errors import ExporterError, UsageError
from exporter.web.landing import landing_page
from exporter.web.negotiation import accepts_gzip, choose_form
from exporter.web.published import Published
from exporter.web.request import Request
from exporter.web.response import JSON, Response, message

Reload = Callable[[], None]
"""Reads the settings again; raises ExporterError if they are bad, and keeps the old ones."""

_READ = ("GET", "HEAD")
_CHANGE = ("POST", "PUT")
_NO_SCAN_YET = "the first scan is under way"


class _Route(Struct, frozen=True):
    methods: tuple[str, ...]
    respond: Callable[[Request], Response | Awaitable[Response]]


class Routes:
    """Answers a request by its path; `reload` is None unless the lifecycle is enabled."""

    def __init__(
        self,
        published: Published,
        *,
        telemetry_path: str = "/metrics",
        reload: Reload | None = None,
    ) -> None:
        self._published = published
        self._telemetry_path = telemetry_path
        self._reload = reload
        self._reloading = asyncio.Lock()
        self._routes = {
            "/": _Route(_READ, self._landing),
            "/-/healthy": _Route(_READ, lambda _: message(200, "healthy")),
            "/-/ready": _Route(_READ, self._ready),
            "/-/reload": _Route(_CHANGE, self._try_reload),
            "/api/v1/status": _Route(_READ, self._status),
            "/api/v1/sessions": _Route(_READ, self._sessions),
        }
        if telemetry_path in self._routes.keys() - {"/"} or not telemetry_path.startswith("/"):
            raise UsageError(
                f"bad --web.telemetry-path {telemetry_path!r}: "
                "expected a path of its own such as /metrics"
            )
        self._routes[telemetry_path] = _Route(_READ, self._metrics)

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """Answer one request."""
        route = self._routes.get(request.path)
        if route is None:
            return message(404, "not found; / shows what there is")
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            return message(405, f"only {allowed} here", ("Allow", allowed))
        return route.respond(request)

    def _metrics(self, request: Request) -> Response:
        rendered = self._published.content.metrics
        if rendered is None:
            return message(503, _NO_SCAN_YET)
        form = choose_form(request.headers.get("accept", ""))
        compressed = _wants_gzip(request)
        return Response(
            200,
            rendered.body(openmetrics=form.openmetrics, compressed=compressed),
            content_type=form.content_type,
            headers=_GZIPPED_FORM if compressed else _FORM,
        )

    def _landing(self, _request: Request) -> Response:
        return landing_page(self._published.content, self._telemetry_path)

    def _ready(self, _request: Request) -> Response:
        return (
            message(200, "ready") if self._published.content.ready else message(503, _NO_SCAN_YET)
        )

    def _status(self, _request: Request) -> Response:
        status = self._published.content.status
        return message(503, _NO_SCAN_YET) if status is None else Response(200, status, JSON)

    def _sessions(self, request: Request) -> Response:
        sessions = self._published.content.sessions
        if sessions is None:
            return message(503, _NO_SCAN_YET)
        if _wants_gzip(request):
            return Response(200, sessions.data, JSON, _GZIPPED)
        return Response(200, sessions, JSON, _VARIES)

    def _try_reload(self, request: Request) -> Response | Awaitable[Response]:
        if self._reload is None:
            return message(403, "reload is off; start serve with --web.enable-lifecycle")
        if "origin" in request.headers:
            # Only browsers send Origin. A web page that is open on this host must not reload us.
            return message(403, "reload is not for browsers; use curl -X POST")
        return self._perform(self._reload)

    async def _perform(self, reload: Reload) -> Response:
        async with self._reloading:
            try:
                await asyncio.to_thread(reload)
            except ExporterError as error:
                return message(500, f"reload failed: {' '.join(str(error).split())}")
        return message(200, "reloaded")


_VARIES = (("Vary", "Accept-Encoding"),)
_GZIPPED = (*_VARIES, ("Content-Encoding", "gzip"))
_FORM = (("Vary", "Accept, Accept-Encoding"),)
_GZIPPED_FORM = (*_FORM, ("Content-Encoding", "gzip"))


def _wants_gzip(request: Request) -> bool:
    return accepts_gzip(request.headers.get("accept-encoding", ""))
