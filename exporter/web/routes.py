"""The paths that the agent serves.

Every path but `/-/reload` only reads what was published last. Nothing here can delete, reap or
touch a home.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from exporter.errors import ExporterError, UsageError
from exporter.web.negotiation import accepts_gzip, choose_form
from exporter.web.openapi import document
from exporter.web.pages.environment import page, static_file
from exporter.web.pages.host import host_page
from exporter.web.pages.runbooks import runbook_page, runbooks_page
from exporter.web.pages.sessions import filters, run_page, session_page, sessions_page
from exporter.web.published import Published
from exporter.web.queries import HostQueries, QueryError
from exporter.web.request import Request
from exporter.web.response import JSON, Response, message, pack

Reload = Callable[[], None]
"""Reads the settings again; raises ExporterError if they are bad, and keeps the old ones."""

_READ = ("GET", "HEAD")
_CHANGE = ("POST", "PUT")
_NO_SCAN_YET = "the first scan is under way"
_NOT_HERE = "not found; / shows what there is"
_NO_RUNBOOK = "there is no such runbook; /runbooks/ lists them"
_RETRY = ("Retry-After", "5")
_RENDERING_MAX: Final = 2
_PENDING_MAX: Final = 64
"""Answers that take time. A connection that waits for one gives way to none, so with more of them
all connections could be taken, and a scrape be refused.
"""


class _Route(Struct, frozen=True):
    methods: tuple[str, ...]
    respond: Callable[[Request], Response | Coroutine[Any, Any, Response]]


class Routes:
    """Answers a request by its path; `reload` is None unless the lifecycle is enabled."""

    def __init__(
        self,
        published: Published,
        *,
        telemetry_path: str = "/metrics",
        reload: Reload | None = None,
        queries: HostQueries | None = None,
    ) -> None:
        self._published = published
        self._telemetry_path = telemetry_path
        self._reload = reload
        self._reloading = asyncio.Lock()
        self._queries = queries
        self._pending = 0
        self._rendering = asyncio.Semaphore(_RENDERING_MAX)
        self._routes = {
            "/": _Route(_READ, self._host_page),
            "/-/healthy": _Route(_READ, lambda _: message(200, "healthy")),
            "/-/ready": _Route(_READ, self._ready),
            "/-/reload": _Route(_CHANGE, self._try_reload),
            "/api/v1/status": _Route(_READ, self._status),
            "/api/v1/sessions": _Route(_READ, self._sessions),
            "/api/v1/runs": _Route(_READ, self._runs),
            "/api/v1/trends": _Route(_READ, self._trends),
            "/api/v1/openapi.json": _Route(_READ, lambda _: Response(200, document(), JSON)),
            "/sessions": _Route(_READ, self._sessions_page),
            "/runbooks": _Route(_READ, self._runbooks_page),
            "/runbooks/": _Route(_READ, self._runbooks_page),
        }
        self._prefixes = {
            "/static/": _Route(_READ, self._static),
            "/sessions/": _Route(_READ, self._session_page),
            "/runs/": _Route(_READ, self._run_page),
            "/runbooks/": _Route(_READ, self._runbook_page),
            "/api/v1/sessions/": _Route(_READ, self._session),
            "/api/v1/runs/": _Route(_READ, self._run),
        }
        taken = telemetry_path in self._routes.keys() - {"/"} or telemetry_path.startswith(
            tuple(self._prefixes)
        )
        if taken or not telemetry_path.startswith("/"):
            raise UsageError(
                f"bad --web.telemetry-path {telemetry_path!r}: "
                "expected a path of its own such as /metrics"
            )
        self._routes[telemetry_path] = _Route(_READ, self._metrics)

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """Answer one request."""
        route = self._routes.get(request.path) or self._below(request.path)
        if route is None:
            return message(404, _NOT_HERE)
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            return message(405, f"only {allowed} here", ("Allow", allowed))
        answer = route.respond(request)
        if isinstance(answer, Response):
            return answer
        if self._pending >= _PENDING_MAX:
            answer.close()
            return message(503, "too many requests at once", _RETRY)
        self._pending += 1
        return self._counted(answer)

    async def _counted(self, answer: Coroutine[Any, Any, Response]) -> Response:
        try:
            return await answer
        finally:
            self._pending -= 1

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

    def _runs(self, _request: Request) -> Response:
        content = self._published.content
        return message(503, _NO_SCAN_YET) if content.status is None else _json(content.runs)

    async def _trends(self, _request: Request) -> Response:
        if self._queries is None:
            return message(404, _NOT_HERE)
        try:
            found = await self._queries.trends()
        except QueryError as error:
            return message(503, str(error), _RETRY)
        return _json(msgspec.json.encode(found))

    async def _session(self, request: Request) -> Response:
        return await self._answer(request, lambda ask, name: ask.session(name), _as_json)

    async def _run(self, request: Request) -> Response:
        return await self._answer(request, lambda ask, name: ask.run(name), _as_json)

    # Pages for people

    def _static(self, request: Request) -> Response:
        return static_file(_last_part(request)) or message(404, _NOT_HERE)

    async def _host_page(self, request: Request) -> Response:
        content = self._published.content
        if content.status is None or not content.ready:
            return page("message.html", 200, title="hermes-exporter", text=f"{_NO_SCAN_YET}.")
        try:
            trends = await self._queries.trends() if self._queries is not None else None
        except QueryError:
            trends = None  # the rest of the page is known
        status, runs = msgspec.json.decode(content.status), msgspec.json.decode(content.runs)
        only = filters(request.query).get("home")
        return await self._render(
            request, lambda: host_page(status, runs, trends, self._telemetry_path, only)
        )

    async def _sessions_page(self, request: Request) -> Response:
        content = self._published.content
        packed, status = content.sessions, content.status
        if packed is None or status is None:
            return page("message.html", 503, title="Sessions", text=f"{_NO_SCAN_YET}.")

        def make() -> Response:
            homes = msgspec.json.decode(status).get("homes", ())
            rows = msgspec.json.decode(b"".join(packed.unpack()))
            left_out = sum(each["not_listed"] for each in homes)
            return sessions_page(rows, request.query, time.time(), left_out)

        return await self._render(request, make)

    async def _session_page(self, request: Request) -> Response:
        return await self._answer(
            request, lambda ask, name: ask.session(name), lambda _, found: session_page(found)
        )

    async def _run_page(self, request: Request) -> Response:
        return await self._answer(request, lambda ask, name: ask.run(name), run_page)

    async def _runbooks_page(self, request: Request) -> Response:
        return await self._render(request, runbooks_page)

    async def _runbook_page(self, request: Request) -> Response:
        name = _last_part(request).removesuffix(".md")
        return await self._render(request, lambda: runbook_page(name) or _sorry(404, _NO_RUNBOOK))

    async def _answer(
        self,
        request: Request,
        ask: Callable[[HostQueries, str], Awaitable[Any]],
        show: Callable[[str, Any], Response],
    ) -> Response:
        """Ask the agent about the last part of the path, and show its answer."""
        in_json = request.path.startswith("/api/")
        name = unquote(_last_part(request))
        try:
            found = await ask(self._queries, name) if self._queries is not None else None
        except QueryError as error:
            return _sorry(503, str(error), in_json=in_json)
        if found is None:
            return _sorry(404, "there is no such open session or run", in_json=in_json)
        return show(name, found)

    async def _render(self, request: Request, make: Callable[[], Response]) -> Response:
        """Make a page in a thread; only a few at a time, because each needs memory."""

        def compressed() -> Response:
            made = make()
            return _gzipped(made) if _wants_gzip(request) else made

        async with self._rendering:
            try:
                return await asyncio.to_thread(compressed)
            except ValueError:
                return message(400, "malformed query")

    def _below(self, path: str) -> _Route | None:
        """Return the route of a path such as `/sessions/ID`."""
        prefix, _, name = path.rpartition("/")
        return self._prefixes.get(f"{prefix}/") if name else None

    def _try_reload(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
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


def _last_part(request: Request) -> str:
    return request.path.rpartition("/")[2]


def _json(body: bytes) -> Response:
    return Response(200, body, JSON)


def _as_json(_name: str, found: Any) -> Response:
    return _json(msgspec.json.encode(found))


def _sorry(status: int, why: str, *, in_json: bool = False) -> Response:
    headers = (_RETRY,) if status == 503 else ()
    if in_json:
        return message(status, why, *headers)
    return page("message.html", status, title="Not available", text=f"{why[:1].upper()}{why[1:]}.")


_VARIES = (("Vary", "Accept-Encoding"),)
_GZIPPED = (*_VARIES, ("Content-Encoding", "gzip"))
_FORM = (("Vary", "Accept, Accept-Encoding"),)
_GZIPPED_FORM = (*_FORM, ("Content-Encoding", "gzip"))


def _gzipped(made: Response) -> Response:
    """A page with charts is ten times as large without; an open one is fetched every 15 seconds."""
    if not isinstance(made.body, bytes):
        return made
    return msgspec.structs.replace(
        made, body=pack([made.body]).data, headers=(*made.headers, *_GZIPPED)
    )


def _wants_gzip(request: Request) -> bool:
    return accepts_gzip(request.headers.get("accept-encoding", ""))
