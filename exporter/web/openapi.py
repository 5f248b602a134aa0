"""The description of `/api/v1` in OpenAPI 3.1."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from exporter import __version__

_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_COUNTS: Final = {"type": "object", "additionalProperties": {"type": ["integer", "null"]}}
_MODE: Final = {"type": "object", "additionalProperties": {"enum": ["observe", "enforce"]}}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


def _list(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_EVIDENCE: Final = _list(_object(kind=_TEXT, says=_TEXT, detail=_TEXT))
_SESSION: Final = {
    "home": _TEXT,
    "id": _TEXT,
    "source": _TEXT,
    "started_at": _or_null(_NUMBER),
    "last_activity_at": _or_null(_NUMBER),
    "messages": _WHOLE,
    "tokens": _WHOLE,
    "verdict": {"enum": ["live", "held", "dead", "exempt", "unknown"]},
    "evidence": _EVIDENCE,
}
_RUN: Final = {
    "run": _TEXT,
    "kind": _TEXT,
    "home": _TEXT,
    "started_at": _NUMBER,
    "finished_at": _or_null(_NUMBER),
    "outcome": _or_null(_TEXT),
    "actions": _WHOLE,
    "bytes": _WHOLE,
    "undoable_until": _or_null(_NUMBER),
}
_SCHEMAS: Final = {
    "Status": _object(
        homes=_list(_ref("Home")),
        refused=_WHOLE,
        agent=_object(
            version=_TEXT,
            mode=_MODE,
            started_at=_or_null(_NUMBER),
            blind=_list(_TEXT),
            config_ok=_FLAG,
        ),
    ),
    "Home": _object(
        home=_TEXT,
        up=_FLAG,
        trouble=_TEXT,
        blind=_list(_TEXT),
        mode=_MODE,
        sessions=_COUNTS,
        not_listed=_WHOLE,
        verdicts=_COUNTS,
        leaked=_list(_object(source=_TEXT, cause=_TEXT, sessions=_WHOLE)),
        unknown={"type": "object", "additionalProperties": _WHOLE},
        waiting=_list(
            _object(
                reason=_TEXT,
                sessions=_WHOLE,
                overdue=_WHOLE,
                processes=_WHOLE,
                process_began_at=_or_null(_NUMBER),
                dead_at=_or_null(_NUMBER),
            )
        ),
        disk={"type": "object", "additionalProperties": _WHOLE},
        thresholds=_list(
            _object(
                name=_TEXT,
                value=_or_null(_NUMBER),
                high=_NUMBER,
                low=_NUMBER,
                pressure=_FLAG,
                over_since=_or_null(_NUMBER),
                acts_at=_or_null(_NUMBER),
            )
        ),
        breaker=_or_null(_TEXT),
        would_reap=_or_null(_WHOLE),
        slow_start=_or_null(_object(per_hour=_WHOLE, left=_WHOLE, waiting=_WHOLE)),
        would_prune=_object(items=_or_null(_WHOLE), bytes=_or_null(_WHOLE)),
        could_prune=_object(items=_or_null(_WHOLE), bytes=_or_null(_WHOLE)),
        planned_at=_or_null(_NUMBER),
        policies=_list(_object(policy=_TEXT, eligible=_WHOLE, items=_WHOLE, bytes=_WHOLE)),
        prune_blocked=_list(_TEXT),
        unreachable=_list(_object(threshold=_TEXT, reason=_TEXT, bytes=_WHOLE)),
        capped=_or_null(_object(items=_WHOLE, bytes=_WHOLE, more_at=_or_null(_NUMBER))),
        next_clean_up_at=_or_null(_NUMBER),
        has_database=_or_null(_FLAG),
        cannot_write=_or_null(_TEXT),
        scanned_at=_or_null(_NUMBER),
    ),
    "Session": _object(**_SESSION),
    "Explained": _object(**_SESSION, rules=_list(_object(rule=_TEXT, holds=_FLAG, why=_TEXT))),
    "Run": _object(**_RUN),
    "RunInHome": _object(
        **_RUN,
        why=_TEXT,
        trimmed=_WHOLE,
        items=_list(
            _object(
                action=_TEXT,
                policy=_or_null(_TEXT),
                target=_TEXT,
                reason=_TEXT,
                bytes=_WHOLE,
                state=_TEXT,
                why=_TEXT,
            )
        ),
        left_out=_WHOLE,
    ),
    "Trends": _object(
        interval_seconds=_WHOLE,
        homes=_list(
            _object(
                home=_TEXT,
                at=_list(_WHOLE),
                open=_list(_WHOLE),
                dead=_list(_WHOLE),
                unknown=_list(_WHOLE),
                tokens=_list(_NUMBER),
                disk={"type": "object", "additionalProperties": _list(_WHOLE)},
            )
        ),
    ),
}


_PARAMETERS: Final = {"session": "id", "run": "run"}


def _get(
    operation: str, summary: str, schema: dict[str, Any], parameter: str = "", link: str = ""
) -> dict[str, Any]:
    """Describe a path; `link` names the operation that tells more of each item of the list."""
    plain = {"text/plain": {"schema": _TEXT}}
    described: dict[str, Any] = {
        "operationId": operation,
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": {"application/json": {"schema": schema}}},
            "503": {"description": "Not known yet; try again.", "content": plain},
        },
    }
    if link:
        key = _PARAMETERS[link]
        described["responses"]["200"]["links"] = {
            link: {"operationId": link, "parameters": {key: f"$response.body#/0/{key}"}}
        }
    if parameter:
        described["parameters"] = [
            {"name": parameter, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
        ]
        described["responses"]["404"] = {"description": "There is none.", "content": plain}
    return {"get": described}


@cache
def document() -> bytes:
    """Return the description as JSON."""
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "hermes-exporter",
                "version": __version__,
                "description": "What one agent knows of its host. Nothing here changes anything.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "paths": {
                "/api/v1/status": _get("status", "Every home in one document.", _ref("Status")),
                "/api/v1/sessions": _get(
                    "sessions", "The open sessions.", _list(_ref("Session")), link="session"
                ),
                "/api/v1/sessions/{id}": _get(
                    "session", "One open session, with each rule.", _ref("Explained"), "id"
                ),
                "/api/v1/runs": _get(
                    "runs", "The newest runs of each home.", _list(_ref("Run")), link="run"
                ),
                "/api/v1/runs/{run}": _get(
                    "run", "One run in each home it acted on.", _list(_ref("RunInHome")), "run"
                ),
                "/api/v1/trends": _get("trends", "Figures of the last 14 days.", _ref("Trends")),
            },
            "components": {"schemas": _SCHEMAS},
        }
    )
