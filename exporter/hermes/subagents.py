"""Recognise the subagents of Hermes up to 0.16, which do not say what they are.

From 0.17 on a subagent's row has the source `subagent`. Before, it has the source of the process
that runs its parent, for example `api_server` or `telegram`. The row is a subagent's if all hold:

    an agent made it         `model_config` has the key `max_tokens`; no fork and no branch has it
    it has no marker         newer releases mark branches and subagents
    it has no title          forks, branches and what a person or the model named have one
    its turn limit differs   a subagent has `delegation.max_iterations`, other rows the chat's limit
    its parent was open      a continuation begins when its parent has ended
    it begins otherwise      no summary, and not with the first message of its parent

If one of them cannot be told, the row counts as what its source says.
"""

from __future__ import annotations

from typing import Final

from exporter.hermes.continuations import MADE_BY_AGENT, MARKERS, SUMMARY_BELOW, SUMMARY_PREFIXES
from exporter.hermes.schema import Schema

_LIMIT: Final = "json_extract({}.model_config, '$.max_iterations')"
_FIRST: Final = "(SELECT content FROM messages WHERE session_id = {}.id ORDER BY id LIMIT 1)"


def is_unmarked_subagent(schema: Schema) -> str:
    """Return SQL over `sessions`: 1 for an open session that is surely an unmarked subagent."""
    columns = ("parent_session_id", "model_config", "title", "started_at", "ended_at")
    if not schema.has("sessions", *columns) or not schema.has(
        "messages", "id", "session_id", "role", "content"
    ):
        return "0"
    # CASE evaluates in this order: json_extract fails on text that is not JSON.
    return (
        "CASE WHEN sessions.ended_at IS NOT NULL OR sessions.parent_session_id IS NULL "
        # An API client's fork of an empty session begins otherwise than its parent.
        "OR sessions.source = 'subagent' OR sessions.title IS NOT NULL "
        "OR NOT COALESCE(json_valid(sessions.model_config), 0) "
        f"THEN 0 WHEN {_is_made_by_agent()} "
        f"THEN EXISTS (SELECT 1 FROM sessions AS parent WHERE {_is_other_than_its_parent()}) "
        f"AND NOT {_has_summary()} ELSE 0 END"
    )


def _is_made_by_agent() -> str:
    markers = " AND ".join(
        f"json_type(sessions.model_config, '$.{marker}') IS NULL" for marker in MARKERS
    )
    return f"json_type(sessions.model_config, '$.{MADE_BY_AGENT}') IS NOT NULL AND {markers}"


def _is_other_than_its_parent() -> str:
    own, parents = _LIMIT.format("sessions"), _LIMIT.format("parent")
    return (
        "parent.id = sessions.parent_session_id "
        "AND (parent.ended_at IS NULL OR parent.ended_at > sessions.started_at) "
        # NULL if one of the limits is missing: then it cannot be told.
        f"AND CASE WHEN json_valid(parent.model_config) THEN {own} <> {parents} END "
        f"AND NOT COALESCE({_FIRST.format('sessions')} = {_FIRST.format('parent')}, 0)"
    )


def _has_summary() -> str:
    texts = (*SUMMARY_PREFIXES, SUMMARY_BELOW)
    said = " OR ".join(f"instr(content, '{text}') > 0" for text in texts)
    return f"EXISTS (SELECT 1 FROM messages WHERE session_id = sessions.id AND ({said}))"
