"""How much of the host a /proc shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exporter.evidence.models import Blindness
from exporter.evidence.namespaces import blindness, pid_namespace
from tests.real.hermes import REPOSITORY
from tests.support.evidence import IN_NEW_PID_NAMESPACE

_ASK = "from exporter.evidence.namespaces import *; import sys; print(*blindness(sys.argv[1]))"


def ask(*wrapper: str, proc: str = "/proc") -> list[str]:
    command = [*wrapper, sys.executable, "-c", _ASK, proc]
    return subprocess.check_output(command, cwd=REPOSITORY, text=True).split()


def test_a_nested_pid_namespace_is_blind_to_the_rest_of_the_host() -> None:
    assert Blindness.PID_NAMESPACE in ask(*IN_NEW_PID_NAMESPACE)


def test_a_container_with_the_hosts_proc_sees_what_the_host_sees() -> None:
    there = ask("unshare", "-p", "-f", "--kill-child")
    assert there == [str(reason) for reason in blindness()]


def test_a_missing_proc_is_reported(tmp_path: Path) -> None:
    assert blindness(str(tmp_path)) == [Blindness.NO_PROC]


def test_a_pid_namespace_has_a_number_and_without_proc_there_is_none(tmp_path: Path) -> None:
    assert pid_namespace() is not None
    assert pid_namespace(str(tmp_path)) is None
