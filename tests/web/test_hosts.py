"""A page in a browser cannot read a loopback listener under a name of its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from exporter.web.hosts import AllowedHosts, is_loopback, names_of_this_host

HOSTS = AllowedHosts({"localhost", "web1", "web1.example.org", "Metrics.Example.org"})


@pytest.mark.parametrize(
    "header",
    [
        *("localhost", "localhost:10749", "LOCALHOST", "localhost.", "web1:80", "web1.example.org"),
        *("127.0.0.1", "127.0.0.1:10749", "10.1.2.3:1", "[::1]:10749", "[::1]", "[fe80::1%eth0]:1"),
        *("metrics.example.org:443", ""),
    ],
)
def test_addresses_and_own_names_are_answered(header: str) -> None:
    assert HOSTS.allows(header)


@pytest.mark.parametrize(
    "header",
    [
        *("evil.example", "evil.example:10749", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("web1.evil.example", "example.org", "[evil]", "1.2.3.4.5", "0x7f.1", "localhosts"),
    ],
)
def test_other_names_are_not(header: str) -> None:
    assert not HOSTS.allows(header)


def test_the_names_of_this_host_come_from_the_kernel_and_the_hosts_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    own = socket.gethostname()
    file.write_text(
        f"127.0.0.1 localhost ads.example\n# {own} commented.example\n"
        f"127.0.1.1\t{own}.example.org  {own} alias # remark\n10.0.0.1 other.example\n"
    )
    names = names_of_this_host(str(file))
    assert {"localhost", own, f"{own}.example.org", "alias"} <= names
    assert not {"ads.example", "commented.example", "other.example", "remark"} & names
    assert own in names_of_this_host(str(tmp_path / "missing"))


def test_which_addresses_are_loopback() -> None:
    for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(address)
    for address in ("0.0.0.0", "::", "10.0.0.1", "localhost"):
        assert not is_loopback(address)
