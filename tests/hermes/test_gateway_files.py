"""The records of a gateway: which one is believed, and what a damaged one is worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.hermes.gateway_files import read_gateway
from exporter.snapshot import FileIdentity, GatewayFiles


def test_a_home_that_never_had_a_gateway_has_none(tmp_path: Path) -> None:
    assert read_gateway(str(tmp_path)) is None


def test_the_record_of_the_process_comes_before_that_of_its_state(tmp_path: Path) -> None:
    (tmp_path / "gateway_state.json").write_text(json.dumps({"pid": 8, "start_time": 80}))
    assert read_gateway(str(tmp_path)) == GatewayFiles(pid=8, start_ticks=80, lock=None)
    (tmp_path / "gateway.pid").write_text(json.dumps({"pid": 7, "start_time": 70}))
    assert read_gateway(str(tmp_path)) == GatewayFiles(pid=7, start_ticks=70, lock=None)


def test_a_lock_alone_tells_of_a_gateway(tmp_path: Path) -> None:
    (tmp_path / "gateway.lock").touch()
    found = (tmp_path / "gateway.lock").stat()
    assert read_gateway(str(tmp_path)) == GatewayFiles(
        pid=None, start_ticks=None, lock=FileIdentity(found.st_dev, found.st_ino)
    )


@pytest.mark.parametrize(
    "content",
    ["{", "[7]", '{"pid": "7", "start_time": "70"}', '{"pid": 0, "start_time": -1}', "{}"],
)
def test_a_record_that_says_nothing_is_still_that_of_a_gateway(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "gateway.pid").write_text(content)
    assert read_gateway(str(tmp_path)) == GatewayFiles(pid=None, start_ticks=None, lock=None)


def test_only_the_latest_plausible_starts_are_kept(tmp_path: Path) -> None:
    lines = [*(str(number) for number in range(1, 101)), "soon", "-1", "1e11", "nan", ""]
    (tmp_path / "gateway-starts.log").write_text("\n".join(lines))
    found = read_gateway(str(tmp_path))
    assert found is not None
    assert found.starts == [float(number) for number in range(41, 101)]
