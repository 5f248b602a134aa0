"""Before a command acts: pruned sessions that are there again get their past back."""

from __future__ import annotations

from exporter import acts, logs
from exporter.config.settings import Settings
from exporter.errors import RefusedError, WorkerError
from exporter.rounds import Rounds

log = logs.get("heal")


def heal_first(rounds: Rounds, settings: Settings) -> None:
    """Heal every home in which the scan has seen a deleted session again."""
    for state in rounds.states():
        home = state.home
        if not state.reborn or not home.may_write or state.evidence is None:
            continue
        own = settings.for_home(home.named_as)
        try:
            healed = acts.heal(rounds.worker(home), home, state.evidence, own)
        except (RefusedError, WorkerError, TimeoutError) as error:
            rounds.failed(home, error)
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
