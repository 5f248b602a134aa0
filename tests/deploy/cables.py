"""A network of this test's own: a switch, and hosts that hang on it by a cable that can be cut."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESSES = "198.18.249."
"""Of a range that is kept for measurements between devices: no host has such an address."""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Cable:
    """From the switch to one host."""

    def __init__(self, device: str, address: str) -> None:
        self._device = device
        self.address = address

    def cut(self) -> None:
        ip("link", "set", self._device, "down")

    def mend(self) -> None:
        ip("link", "set", self._device, "up")


class Switch:
    """This host is on it, with the first address."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ports = 0

    def plug(self, namespace: str) -> Cable:
        """Lead a cable into a network namespace: by its name, or by the PID of a process in it."""
        self._ports += 1
        here, there = f"{self._name}-{self._ports}", f"{self._name}p{self._ports}"
        address = f"{ADDRESSES}{10 + self._ports}"
        ip("link", "add", here, "type", "veth", "peer", "name", there)
        ip("link", "set", here, "master", self._name, "up")
        ip("link", "set", there, "netns", namespace)
        way = "--net=/run/netns/" + namespace
        if namespace.isdecimal():
            way = f"--net=/proc/{namespace}/ns/net"
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{address}/24", "dev", there),
            ("link", "set", there, "up"),
        ):
            subprocess.run(["nsenter", way, "ip", *words], check=True)
        return Cable(here, address)


@contextmanager
def switch() -> Iterator[Switch]:
    taken = subprocess.check_output(["ip", "address"], text=True)
    assert ADDRESSES not in taken, f"this host uses {ADDRESSES}0/24 already"
    name = f"hx{os.getpid() % 100_000}"
    ip("link", "add", name, "type", "bridge")
    try:
        ip("address", "add", f"{ADDRESSES}1/24", "dev", name)
        ip("link", "set", name, "up")
        yield Switch(name)
    finally:
        ip("link", "delete", name)


@contextmanager
def network(name: str) -> Iterator[str]:
    """A network namespace of that name."""
    full = f"{name}-{os.getpid()}"
    ip("netns", "add", full)
    try:
        yield full
    finally:
        ip("netns", "delete", full)
