"""A real Prometheus at the agent's door: TLS, client certificates and passwords, also changing."""

from __future__ import annotations

import base64
import http.client
import itertools
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import bcrypt
import pytest

from tests.real.agent import Agent, agent
from tests.real.command import run
from tests.real.prometheus import free_port, prometheus
from tests.real.waiting import wait_until
from tests.support.certificates import Authority
from tests.support.small_homes import small_home

WEB = """\
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: clients.crt
  client_allowed_sans: [prometheus]
basic_auth_users:
  {users}
"""
JOB = """
  - job_name: {job}
    scheme: {scheme}
    tls_config: {{ca_file: {folder}/authority.crt{tls}}}
    {login}
    static_configs: [{{targets: ['{target}']}}]
"""


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(5)).decode()


def write(file: Path, text: str) -> None:
    """Replace a file as careful programs do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


class Door:
    """The agent's files, and those of its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder)
        self.authority.issue("server", "DNS:localhost,IP:127.0.0.1")
        self.authority.issue("client", "DNS:prometheus")
        self.authority.issue("nameless", "DNS:grafana")
        self.authority.issue("expired", "DNS:prometheus", days=-1)
        Authority(folder / "foreign").issue("client", "DNS:prometheus")
        shutil.copy(folder / "authority.crt", folder / "clients.crt")
        self.set_users(ada="secret")

    @property
    def file(self) -> Path:
        return self.folder / "web.yml"

    def set_users(self, **users: str) -> None:
        lines = "\n  ".join(f"{name}: {hashed(password)}" for name, password in users.items())
        write(self.file, WEB.format(users=lines))

    def rotate_server(self, number: int) -> None:
        """First the certificate, then the key, as many programs do."""
        pair = self.authority.issue(f"server-{number}", "DNS:localhost,IP:127.0.0.1")
        shutil.copy(pair.certificate, self.folder / "server.crt")
        shutil.copy(pair.key, self.folder / "server.key")

    def rotate_authority(self, number: int) -> None:
        """Both authorities of clients are trusted while the clients change over."""
        authority = Authority(self.folder / f"authority-{number}")
        pair = authority.issue("client", "DNS:prometheus")
        known = (self.folder / "clients.crt").read_text()
        write(self.folder / "clients.crt", known + authority.own.certificate.read_text())
        os.replace(pair.key, self.folder / "client.key")
        os.replace(pair.certificate, self.folder / "client.crt")

    def job(self, job: str, target: str, pair: str, login: str, scheme: str = "https") -> str:
        files = f", cert_file: {self.folder}/{pair}.crt, key_file: {self.folder}/{pair}.key"
        return JOB.format(
            job=job,
            target=target,
            scheme=scheme,
            folder=self.folder,
            tls=files if pair else "",
            login=f"basic_auth: {login}" if login else "",
        )

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.folder / "authority.crt"))
        for _ in range(100):
            try:  # between the renames of a rotation the pair does not fit
                context.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
                break
            except ssl.SSLError:
                continue
        return context


@contextmanager
def behind(door: Door, tmp_path: Path) -> Iterator[Agent]:
    home = small_home(tmp_path / "home")
    flags = ("--web.config.file", str(door.file))
    with agent(tmp_path, [home], *flags, ready=False) as running:
        yield running


def test_prometheus_gets_in_with_certificate_and_password_and_in_no_other_way(
    tmp_path: Path,
) -> None:
    door = Door(tmp_path)
    login = "{username: ada, password: secret}"
    with behind(door, tmp_path) as running:
        target = running.address.replace("127.0.0.1", "localhost")
        jobs = {
            "right": door.job("right", target, "client", login),
            "wrong-password": door.job(
                "wrong-password", target, "client", "{username: ada, password: guess}"
            ),
            "unknown-user": door.job(
                "unknown-user", target, "client", "{username: bob, password: secret}"
            ),
            "no-password": door.job("no-password", target, "client", ""),
            "no-certificate": door.job("no-certificate", target, "", login),
            "another-name": door.job("another-name", target, "nameless", login),
            "expired": door.job("expired", target, "expired", login),
            "foreign": door.job("foreign", target, "foreign/client", login),
            "plain": door.job("plain", target, "client", login, scheme="http"),
        }
        header = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:"
        with prometheus([], configuration=header + "".join(jobs.values())) as server:
            server.wait_for('up{job="right"} == 1')
            server.wait_for("count(up)", lambda found: found[0][1] == len(jobs))
            server.wait_for('count_over_time(hermes_home_up{job="right"}[1m])')
            assert server.query("max_over_time(up[10m]) == 1") == [
                ({"instance": target, "job": "right"}, 1.0)
            ]
            errors = {
                each["labels"]["job"]: each["lastError"]
                for each in server.get("/api/v1/targets")["activeTargets"]
            }
        assert errors["right"] == ""
        for job in ("wrong-password", "unknown-user", "no-password"):
            assert "401 Unauthorized" in errors[job]
        for job in ("no-certificate", "another-name", "expired", "foreign"):
            assert "401" not in errors[job]
            assert errors[job]
        assert "400 Bad Request" in errors["plain"]
        # Nothing of a password or of a key is in the log.
        assert "secret" not in running.log()
        assert "PRIVATE" not in running.log()


class Load:
    """Clients that scrape as fast as they can, with a new connection each time or one for all."""

    def __init__(self, door: Door, port: int) -> None:
        self.door = door
        self.port = port
        self.login = ("ada", "secret")
        self.failures: list[str] = []
        self.answers = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._scrape, args=(kept,)) for kept in (0, 1)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int) -> None:
        """Return after so many more answers."""
        wanted = self.answers + count
        wait_until(lambda: self.answers >= wanted or self.failures, "more answers")

    def _scrape(self, kept: int) -> None:
        connection: http.client.HTTPSConnection | None = None
        while not self._over.is_set():
            user, password = self.login
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            try:
                if connection is None:
                    connection = http.client.HTTPSConnection(
                        "localhost", self.port, context=self.door.context(), timeout=60
                    )
                headers = {"Authorization": f"Basic {token}"}
                connection.request("GET", "/metrics", headers=headers)
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    self.failures.append(f"{response.status} {response.reason}")
                self.answers += 1
            except OSError as error:
                self.failures.append(repr(error))
            if connection is not None and (not kept or connection.sock is None):
                connection.close()
                connection = None
        if connection is not None:
            connection.close()


def rotate_under_load(tmp_path: Path, rounds: int) -> None:
    door = Door(tmp_path)
    with behind(door, tmp_path) as running:
        port = int(running.address.rpartition(":")[2])
        login = "{username: ada, password_file: " + str(tmp_path / "password") + "}"
        (tmp_path / "password").write_text("secret")
        target = f"localhost:{port}"
        job = door.job("right", target, "client", login)
        header = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:"
        with prometheus([], configuration=header + job) as server, Load(door, port) as load:
            server.wait_for('up{job="right"} == 1')
            load.more(10)
            for number in range(rounds):
                door.rotate_server(number)
                load.more(6)
                door.rotate_authority(number)
                load.more(6)
                # Two users while the clients change over; ada is Prometheus.
                user, password = f"user{number}", f"secret{number}"
                last_user, last_password = load.login
                door.set_users(**{"ada": "secret", last_user: last_password, user: password})
                load.login = (user, password)
                load.more(6)
                door.set_users(**{"ada": "secret", user: password})
                load.more(6)
            began = server.query("count_over_time(up[1h])")[0][1]
            server.wait_for("count_over_time(up[1h])", lambda found: found[0][1] > began)
            assert load.failures == []
            assert server.query("min_over_time(up[1h])")[0][1] == 1
        assert running.log().count("web configuration reloaded") >= 4 * rounds - 1


def test_certificates_and_passwords_rotate_without_a_failed_scrape(tmp_path: Path) -> None:
    rotate_under_load(tmp_path, rounds=2)


@pytest.mark.full
def test_certificates_and_passwords_rotate_many_times_without_a_failed_scrape(
    tmp_path: Path,
) -> None:
    rotate_under_load(tmp_path, rounds=40)


def test_several_addresses_of_each_kind_are_served_at_once(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    unix = tmp_path / "web.sock"
    flags = ("--web.listen-address=[::1]:0", f"--web.listen-address=unix:{unix}")
    with agent(tmp_path, [home], *flags) as running:
        log = running.log()
        assert log.count("msg=listening") == 3
        assert f"address=unix:{unix}" in log
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(unix))
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert running.stop() == 0
        assert not unix.exists()


def test_every_socket_of_a_service_manager_is_served(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    unix = tmp_path / "given.sock"
    activate = ("systemd-socket-activate", "-l", f"127.0.0.1:{free_port()}", "-l", str(unix))
    # It starts the agent with the first connection, so this is that connection.
    starter = threading.Thread(target=_connect_until_answered, args=(unix,), daemon=True)
    starter.start()
    with agent(tmp_path, [home], wrapper=activate) as running:
        starter.join(60)
        assert running.log().count("msg=listening") == 2
        assert f"address=unix:{unix}" in running.log()


def _connect_until_answered(path: Path) -> None:
    for _ in itertools.count():
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(path))
                client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
                if client.recv(65536):
                    return
            except OSError:
                pass
        threading.Event().wait(0.05)


def test_check_reads_the_web_configuration_and_the_files_it_names(tmp_path: Path) -> None:
    door = Door(tmp_path)
    home = small_home(tmp_path / "home")
    flags = ("--web.config.file", str(door.file), "--home", str(home), "--state-dir", str(tmp_path))
    assert run("check", *flags).returncode in (0, 1)
    (tmp_path / "server.key").write_text("not a key")
    done = run("check", *flags)
    assert done.returncode == 2
    assert "with its key" in done.stderr
    door.file.write_text("basic_auth_users: {john: doe}\n")
    done = run("check", *flags)
    assert done.returncode == 2
    assert f"{door.file}:1: basic_auth_users.john: is not a bcrypt hash" in done.stderr
