"""A full filesystem asks each home for its share: no user can get another's data pruned."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.agent.disk_share import disk_share
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_store import StateStore
from exporter.config.settings import Settings
from tests.support.small_homes import small_home

MIB = 1 << 20


def test_a_home_has_the_share_of_what_it_holds_on_its_filesystem(tmp_path: Path) -> None:
    homes = [small_home(tmp_path / name) for name in ("small", "large")]
    (homes[1] / "logs").mkdir(exist_ok=True)
    (homes[1] / "logs" / "agent.log").write_bytes(b"x" * 64 * MIB)
    store = StateStore.in_memory()
    running = ScanLoop(Settings(), store, named=[str(home) for home in homes])
    try:
        running.run(60.0)
        states = {state.home.path: state for state in running.states()}
        shares = [disk_share(states[str(home)], states.values()) for home in homes]
    finally:
        running.close()
        store.close()
    assert sum(shares) == pytest.approx(1.0)
    assert shares[1] > 0.9
    assert disk_share(states[str(homes[0])], ()) == 1.0
