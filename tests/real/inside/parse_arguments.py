"""What the real `hermes` program makes of some command lines: which mode, and which session."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import types
from typing import Any

import hermes_cli.main as program  # type: ignore[import-not-found]


class Asked(BaseException):
    """Raised where the program would begin its work."""


def _stop(mode: str, resume: Any = None) -> None:
    raise Asked(mode, bool(resume))


def _chat(**options: Any) -> None:
    # As cli.main decides, in every release: `if query or image:` answers once, else it is a chat.
    once = options.get("query") or options.get("image")
    _stop("oneshot" if once else "chat", options.get("resume"))


def _stop_before_work() -> None:
    sys.modules["cli"] = types.SimpleNamespace(main=_chat)  # type: ignore[assignment]
    oneshot = types.SimpleNamespace(run_oneshot=lambda *_, **__: _stop("oneshot"))
    sys.modules["hermes_cli.oneshot"] = oneshot  # type: ignore[assignment]
    replaced: dict[str, Any] = {
        "_has_any_provider_configured": lambda *_: True,
        "_launch_tui": lambda resume=None, *_, **__: _stop("tui", resume),
        "_prepare_agent_startup": lambda *_: None,
        "_resolve_last_session": lambda *_, **__: "last",
        "_resolve_session_by_name_or_id": lambda name: name,
        "_run_and_exit_oneshot": lambda *_, **__: _stop("oneshot"),
        "_sync_bundled_skills_for_startup": lambda *_: None,
    }
    for name, value in replaced.items():
        if hasattr(program, name):
            setattr(program, name, value)


def _ask(arguments: list[str]) -> tuple[str, bool]:
    sys.argv = ["hermes", *arguments]
    silence = io.StringIO()
    try:
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            program._apply_profile_override()
            program.main()
    except Asked as asked:
        return asked.args[0], asked.args[1]
    except SystemExit:
        return "exit", False
    return "done", False


def main() -> None:
    request = json.load(sys.stdin)
    _stop_before_work()
    answers = [_ask(line) for line in request["lines"]]
    json.dump(answers, sys.stdout)


main()
