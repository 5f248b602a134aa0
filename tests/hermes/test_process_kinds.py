"""The facts that a command line gives about a process, and the text that must never be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hermes.process_kinds import (
    NamedBy,
    ProcessKind,
    Role,
    classify,
    session_in_environment,
)

PYTHON = "/opt/venv/bin/python3"
HERMES = "/opt/venv/bin/hermes"
ID = "20260102_030405_abcdef"


def command_line(*arguments: str) -> bytes:
    return b"".join(argument.encode() + b"\0" for argument in arguments)


def hermes(*arguments: str) -> Role:
    return classify(command_line(PYTHON, HERMES, *arguments))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ("", "cli"),
        ("chat", "cli"),
        ("--yolo -m some/model chat", "cli"),
        ("-p coder chat --checkpoints", "cli"),
        ("chat -p gateway", "cli"),
        ("-wv", "cli"),
        ("-w -s a,b", "cli"),
        ("chat -q prompt", "oneshot"),
        ("chat -Q --query=prompt", "oneshot"),
        ("chat -Qqprompt", "oneshot"),
        ("-p worker --cli --accept-hooks chat -q prompt", "oneshot"),
        ("-z prompt", "oneshot"),
        ("-z gateway", "oneshot"),
        ("-m x --oneshot prompt --usage-file /tmp/u", "oneshot"),
        ("--tui", "tui"),
        ("chat --tui -q prompt", "tui"),
        ("chat -q=", "cli"),
        ("chat --query=", "cli"),
        ("chat -Qq=", "cli"),
        ("chat -q prompt -q=", "cli"),
        ("--oneshot=", "cli"),
        ("--oneshot= chat -q prompt", "oneshot"),
        ("chat --image picture", "oneshot"),
        ("chat -q= --image picture", "oneshot"),
        ("gateway", "gateway"),
        ("gateway run", "gateway"),
        ("--profile x gateway run --replace", "gateway"),
        ("gateway -p run restart", "gateway"),
        ("gateway --profile=x run -v", "gateway"),
        ("gateway -v run", "hermes"),
        ("gateway status", "hermes"),
        ("gateway install", "hermes"),
        ("dashboard --port 9119", "dashboard"),
        ("serve", "dashboard"),
        ("web", "hermes"),
        ("acp", "acp"),
        ("cron tick", "cron"),
        ("cron run", "cron"),
        ("cron list", "hermes"),
        ("mcp serve", "hermes"),
        ("mcp add x --args chat", "hermes"),
        ("sessions list", "maintenance"),
        ("sessions browse", "hermes"),
        ("sessions", "hermes"),
        ("sessions --option list", "hermes"),
        ("doctor", "hermes"),
        ("backup", "maintenance"),
        ("kanban daemon", "hermes"),
        ("setup", "hermes"),
        ("--newer-option chat -q prompt", "hermes"),
        ("--ignore chat", "hermes"),
        ("--ig", "hermes"),
        ("--yolo=1", "hermes"),
        ("-m", "hermes"),
        ("chat -q -c", "hermes"),
        ("chat words", "hermes"),
        ("-- chat", "hermes"),
        ("-c gateway", "hermes"),
    ],
)
def test_the_arguments_of_hermes_decide_the_kind(arguments: str, kind: str) -> None:
    assert hermes(*arguments.split()).kind == kind


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ([PYTHON, "-m", "hermes_cli.main", "gateway", "run"], ProcessKind.GATEWAY),
        ([PYTHON, "-u", "-X", "utf8", "-m", "hermes_cli.main"], ProcessKind.CLI),
        ([PYTHON, "-Wignore", "-Im", "hermes_cli.main", "acp"], ProcessKind.ACP),
        (["/usr/bin/python3.13t", "-m", "hermes_cli.main", "serve"], ProcessKind.DASHBOARD),
        ([PYTHON, "-m", "tui_gateway.entry"], ProcessKind.TUI),
        ([PYTHON, "-m", "tui_gateway.compute_host"], ProcessKind.TUI),
        ([PYTHON, "-m", "gateway.run"], ProcessKind.GATEWAY),
        ([PYTHON, "/opt/venv/bin/hermes-acp"], ProcessKind.ACP),
        ([PYTHON, "/opt/venv/bin/hermes-agent", "--query=x"], ProcessKind.HERMES),
        ([PYTHON, "-c", "from hermes_cli.main import main; main()"], ProcessKind.OTHER),
        ([PYTHON, "-c", "code", HERMES, "chat"], ProcessKind.OTHER),
        ([PYTHON, "-"], ProcessKind.OTHER),
        ([PYTHON], ProcessKind.OTHER),
        ([PYTHON, "-m"], ProcessKind.OTHER),
        (["sqlite3", "/home/a/.hermes/state.db"], ProcessKind.OTHER),
        (["bash", "-c", "hermes chat"], ProcessKind.OTHER),
        (["/usr/bin/vim", "hermes"], ProcessKind.OTHER),
    ],
)
def test_every_way_to_start_a_program_is_classified(
    arguments: list[str], kind: ProcessKind
) -> None:
    assert classify(command_line(*arguments)).kind is kind


@pytest.mark.parametrize(
    "arguments",
    [
        [PYTHON, "/srv/gateway/run.py"],
        [PYTHON, "/srv/hermes_cli/main.py", "chat", "-q", "x"],
        [PYTHON, "/srv/exporter/foo.py"],
        [PYTHON, "/opt/venv/bin/hermes-exporter", "serve"],
        [PYTHON, "/opt/venv/bin/hermes-gateway"],
        [PYTHON, "-m", "exporter.workers.worker", "1"],
        [PYTHON, "-m", "my.gateway.run"],
        [HERMES, "chat", "-q", "x"],
    ],
)
def test_no_folder_or_other_file_name_decides_the_kind(arguments: list[str]) -> None:
    assert classify(command_line(*arguments)) == Role(ProcessKind.OTHER, may_resume=True)


def test_an_empty_query_is_an_interactive_chat() -> None:
    assert hermes("chat", "-q", "") == Role(ProcessKind.CLI)
    assert hermes("chat", "--query", "") == Role(ProcessKind.CLI)
    assert hermes("-z", "") == Role(ProcessKind.CLI)


@pytest.mark.parametrize(
    "arguments", [["--cont"], ["-cNAME"], ["--resum", "a title"], [f"--resum={'x' * 9}"]]
)
def test_an_abbreviated_option_resumes_too(arguments: list[str]) -> None:
    assert hermes("chat", "-q", "x", *arguments) == Role(ProcessKind.ONESHOT, may_resume=True)


@pytest.mark.parametrize("line", [b"hermes", b"hermes\0", b"hermes\0\0\0\0\0\0"])
def test_a_process_with_overwritten_arguments_may_be_any_hermes(line: bytes) -> None:
    assert classify(line) == Role(ProcessKind.HERMES, may_resume=True)


@pytest.mark.parametrize("line", [b"", b"\0", b"\0chat\0"])
def test_a_process_without_arguments_may_be_anything(line: bytes) -> None:
    assert classify(line) == Role(ProcessKind.OTHER, may_resume=True)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-r", ID],
        ["--resume", ID],
        [f"--resume={ID}"],
        [f"-r{ID}"],
        ["--res", ID],
        [f"--res={ID}"],
        [f"-r={ID}"],
        ["chat", "-r", ID],
        ["-w", "--resume", ID, "chat"],
    ],
)
def test_an_id_after_resume_names_the_session(arguments: list[str]) -> None:
    assert hermes(*arguments) == Role(ProcessKind.CLI, ID, NamedBy.RESUME, may_resume=True)


@pytest.mark.parametrize(
    "session_id",
    [
        ID,
        "20260102_030405_abcdef01",
        "cron_daily-report_20260102_030405",
        "api_1760000000_abcdef01",
        "123e4567-e89b-12d3-a456-426614174000",
    ],
)
def test_every_shape_of_hermess_own_ids_can_be_resumed(session_id: str) -> None:
    assert hermes("-r", session_id).session_id == session_id


@pytest.mark.parametrize(
    "arguments",
    [["-r", "my", "secret", "plan"], ["-c", "secret"], ["-c"], ["--continue", "chat"], ["-r"]],
)
def test_a_title_after_resume_is_not_kept_but_any_session_may_run(arguments: list[str]) -> None:
    assert hermes(*arguments) == Role(ProcessKind.CLI, may_resume=True)


def test_a_plain_chat_resumes_nothing() -> None:
    assert hermes("chat") == Role(ProcessKind.CLI)


def test_a_one_shot_that_continues_may_resume_any_session() -> None:
    assert hermes("chat", "-c", "-q", "x") == Role(ProcessKind.ONESHOT, may_resume=True)


@pytest.mark.parametrize("arguments", [["--session-key", ID], [f"--session-key={ID}"]])
def test_a_slash_worker_names_its_session(arguments: list[str]) -> None:
    line = command_line(PYTHON, "-m", "tui_gateway.slash_worker", *arguments, "--model", "m")
    assert classify(line) == Role(ProcessKind.SLASH_WORKER, ID, NamedBy.SESSION_KEY)


@pytest.mark.parametrize("arguments", [[], ["--session-key"], ["--session-key", ""]])
def test_a_slash_worker_without_a_session_key_may_run_any_session(arguments: list[str]) -> None:
    line = command_line(PYTHON, "-m", "tui_gateway.slash_worker", *arguments)
    assert classify(line) == Role(ProcessKind.SLASH_WORKER, may_resume=True)


SECRET = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).map(
    lambda text: f"secret{text}"
)


@given(SECRET, st.sampled_from(["-q", "-z", "--resume", "-c", "--model", "--unknown", "chat"]))
def test_no_word_of_a_command_line_is_kept(secret: str, before: str) -> None:
    role = hermes(before, secret)
    assert role.session_id is None


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_arguments_give_a_role(arguments: list[str]) -> None:
    assert isinstance(hermes(*arguments), Role)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_role(line: bytes) -> None:
    assert isinstance(classify(line), Role)


@pytest.mark.parametrize(
    ("environment", "session_id"),
    [
        (f"HOME=/x\0HERMES_SESSION_ID={ID}\0KEY=secret\0".encode(), ID),
        (f"HERMES_SESSION_ID={ID}".encode(), ID),
        (b"HERMES_SESSION_ID=\0", None),
        (b"MY_HERMES_SESSION_ID=x\0", None),
        (b"HERMES_SESSION_ID=a\nb\0", None),
        (b"HERMES_SESSION_ID=" + b"x" * 600, None),
        (b"", None),
    ],
)
def test_only_the_session_id_is_read_from_an_environment(
    environment: bytes, session_id: str | None
) -> None:
    assert session_in_environment(environment) == session_id
