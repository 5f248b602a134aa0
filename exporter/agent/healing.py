"""Correct what earlier runs did wrong, before a command acts."""

from __future__ import annotations

from exporter import logs
from exporter.agent.act_request import heal_request, reap_request
from exporter.agent.home_state import HomeState
from exporter.agent.scan_loop import ScanLoop
from exporter.config.settings import Settings
from exporter.errors import RefusedError, WorkerError
from exporter.workers import protocol

log = logs.get("heal")


def heal_first(loop: ScanLoop, settings: Settings, *, reaps: bool = True) -> None:
    """Heal each home where the scan saw that a reaped or deleted session was used again.

    With `reaps=False` reaped sessions are not healed: the command `reap` heals them itself, because
    it must know whether they stopped automatic reaping.
    """
    for state in loop.states():
        home = state.home
        if reaps:
            _heal_reaps(loop, state, settings)
        if not state.reborn or not home.may_write or state.evidence is None:
            continue
        own = settings.for_home(home)
        try:
            healed = loop.call(home, protocol.HEAL, heal_request(home, state.evidence, own))
        except (RefusedError, WorkerError, TimeoutError) as error:
            log.warn("sessions not healed", home=home.label, why=str(error))
            continue
        if healed.healed:
            log.warn(
                "pruned sessions came back and were given their past",
                home=home.label,
                sessions=healed.healed,
            )
        if healed.why:
            log.warn("sessions not healed", home=home.label, why=healed.why)


def _heal_reaps(loop: ScanLoop, state: HomeState, settings: Settings) -> None:
    home = state.home
    if not state.needs_healing or not home.may_write or state.evidence is None:
        return
    own = settings.for_home(home)
    try:
        request = reap_request(home, state.evidence, own, None, by_hand=True)
        healed = loop.call(home, protocol.REAP, request)
    except (RefusedError, WorkerError, TimeoutError) as error:
        log.warn("reaped sessions not healed", home=home.label, why=str(error))
        return
    if healed.reopened:
        log.warn(
            "sessions reaped wrongly were put right", home=home.label, sessions=len(healed.reopened)
        )
