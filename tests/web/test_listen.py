"""Listen addresses in the forms of exporters."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.errors import ExporterError, UsageError
from exporter.web.listen import (
    check_listen_address,
    format_address,
    inherited_listeners,
    is_local,
    open_listener,
    open_listeners,
    parse_listen_address,
)


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


def test_a_unix_socket_is_for_owner_and_group_and_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    (listener,) = open_listeners([f"unix:{path}"])
    with listener.socket:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert listener.address == f"unix:{path}"
        assert not listener.loopback
        with pytest.raises(ExporterError, match=f"cannot listen on unix:{path}: another program"):
            open_listeners([f"unix:{path}"])
    listener.remove()
    assert not path.exists()


def test_the_socket_file_of_a_dead_agent_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    (dead,) = open_listeners([f"unix:{path}"])
    dead.socket.close()
    (listener,) = open_listeners([f"unix:{path}"])
    with listener.socket:
        dead.remove()  # it is another's now
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    listener.remove()


def test_a_file_in_the_place_of_a_unix_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(ExporterError, match="no socket is there"):
        open_listeners([f"unix:{path}"])
    assert path.read_text() == "mine"


def test_a_failure_closes_what_was_opened_before(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    with pytest.raises(ExporterError, match="no such address"):
        open_listeners([f"unix:{path}", "192.0.2.1:0"])
    assert not path.exists()


@pytest.mark.parametrize("text", ["unix:", "unix:here", "unix:/" + "a" * 200])
def test_a_bad_path_of_a_unix_socket_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="bad listen address"):
        check_listen_address(text)


def test_all_sockets_of_a_service_manager_are_used(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = [
            stack.enter_context(open_listener("127.0.0.1:0")),
            stack.enter_context(open_listener("[::1]:0")),
        ]
        for number, listener in enumerate(made):
            os.dup2(listener.fileno(), 700 + number)
        variables = {"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "a:b"}
        inherited = inherited_listeners(variables, 700)
        for listener in inherited:
            stack.enter_context(listener)
        assert variables == {}
        assert [format_address(each) for each in inherited] == [
            format_address(each) for each in made
        ]
        assert not any(os.get_inheritable(each.fileno()) for each in inherited)


def test_a_descriptor_that_cannot_be_listened_on_is_one_clear_line(tmp_path: Path) -> None:
    variables = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), 700)
        try:
            with pytest.raises(ExporterError, match="descriptor 700 is no socket"):
                inherited_listeners(dict(variables), 700)
        finally:
            os.close(700)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        os.dup2(datagrams.fileno(), 700)
        with pytest.raises(ExporterError, match="use ListenStream="):
            inherited_listeners(variables, 700)


def test_sockets_for_another_process_are_not_taken() -> None:
    assert inherited_listeners({"LISTEN_FDS": "1", "LISTEN_PID": "1"}) == []
    assert inherited_listeners({}) == []


def test_which_addresses_only_this_host_can_open() -> None:
    for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/web.sock"):
        assert is_local(address)
    for address in (":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "web1:1"):
        assert not is_local(address)
