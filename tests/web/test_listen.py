"""Listen addresses in the forms of exporters."""

from __future__ import annotations

import socket

import pytest

from exporter.errors import ExporterError, UsageError
from exporter.web.listen import format_address, open_listener, parse_listen_address


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:10749", ("127.0.0.1", 10749)),
        (":10749", ("", 10749)),
        ("[::1]:10749", ("::1", 10749)),
        ("[::]:0", ("::", 0)),
        ("localhost:10749", ("localhost", 10749)),
    ],
)
def test_the_forms_of_an_address(text: str, parsed: tuple[str, int]) -> None:
    assert parse_listen_address(text) == parsed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10749", "HOST:PORT"),
        ("", "HOST:PORT"),
        ("localhost", "HOST:PORT"),
        ("localhost:http", "HOST:PORT"),
        ("127.0.0.1:65536", "HOST:PORT"),
        ("127.0.0.1:-1", "HOST:PORT"),
        ("127.0.0.1:²", "HOST:PORT"),
        ("::1:10749", r"\[::1\]:10749"),
    ],
)
def test_a_bad_address_is_told_how_to_write_it(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_listen_address(text)


def test_no_host_listens_on_both_families_at_one_port() -> None:
    with open_listener(":0") as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), timeout=10):
                pass


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    with open_listener("[::1]:0") as listener:
        port = listener.getsockname()[1]
        assert format_address(listener) == f"[::1]:{port}"


def test_a_name_with_both_families_means_the_older() -> None:
    with open_listener("localhost:0") as listener:
        assert listener.family == socket.AF_INET


def test_a_taken_port_is_one_clear_line() -> None:
    with open_listener("127.0.0.1:0") as listener:
        address = format_address(listener)
        with pytest.raises(ExporterError, match=f"cannot listen on {address}: .*in use; another"):
            open_listener(address)


def test_an_address_of_another_host_is_one_clear_line() -> None:
    with pytest.raises(ExporterError, match="this host has no such address"):
        open_listener("192.0.2.1:0")


def test_an_unknown_name_is_one_clear_line() -> None:
    with pytest.raises(ExporterError, match=r"cannot listen on no-such-host\.invalid:0: "):
        open_listener("no-such-host.invalid:0")
