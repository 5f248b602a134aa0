"""The default folder for state."""

from __future__ import annotations

import pytest

from exporter.config.paths import default_state_dir
from exporter.errors import UsageError

USER = 54321
"""A user id that is not in the password file."""


def test_root_keeps_state_in_the_system_folder() -> None:
    environ = {"HOME": "/root", "XDG_STATE_HOME": "/root/state"}
    assert default_state_dir(0, environ) == "/var/lib/hermes-exporter"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.local/state/hermes-exporter"),
        ({"HOME": "/home/ada", "XDG_STATE_HOME": "/s"}, "/s/hermes-exporter"),
        (
            {"HOME": "/home/ada", "XDG_STATE_HOME": "not/absolute"},
            "/home/ada/.local/state/hermes-exporter",
        ),
    ],
)
def test_a_user_keeps_state_in_the_xdg_state_directory(
    environ: dict[str, str], expected: str
) -> None:
    assert default_state_dir(USER, environ) == expected


@pytest.mark.parametrize("environ", [{}, {"HOME": "relative"}])
def test_a_user_without_a_home_directory_gets_an_error_that_names_state_dir(
    environ: dict[str, str],
) -> None:
    with pytest.raises(UsageError, match="--state-dir"):
        default_state_dir(USER, environ)
